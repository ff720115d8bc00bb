"""The course's own commands: ``python -m handson COMMAND``. Each command imports what it needs when it runs."""

import sys
import time
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from handson.errors import run

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True, help=__doc__)
site = typer.Typer(no_args_is_help=True)
app.add_typer(site, name="site", help="Fit the job scripts to a site: its queue, group, GPUs and modules.")


class Track(str, Enum):
    pytorch = "pytorch"
    chainer = "chainer"


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="A name of datasets/datasets.toml.")] = "cifar10_256px_5p",
    archive: Annotated[Path | None, typer.Option(help="The archive, if it is already on this machine.")] = None,
):
    """Download and prepare a data set, once."""
    from handson.prepare import prepare

    prepare(name, archive, typer.echo)


@app.command()
def compare(
    outs: Annotated[list[Path], typer.Argument(metavar="OUT...", help="The output directories of training runs.")],
    figure: Annotated[Path, typer.Option("-o", "--output", help="Where the figure goes, as .png and as .svg.")] = Path("throughput.png"),
):
    """Compare training runs: a table, and a figure of throughput and speed-up."""
    from handson.compare import compare

    compare(outs, figure, typer.echo)


@app.command()
def tour(
    folder: Annotated[Path | None, typer.Option("-o", "--output", help="Where it all goes; results/tour_<time> by default.")] = None,
    track: Annotated[list[Track], typer.Option(help="May be repeated; both by default.")] = list(Track),
    options: Annotated[str, typer.Option(help="Options for the training scripts; without -e 2, they run the lecture's 4 epochs.")] = "-e 2",
):
    """See it all work: the three tasks by qsub, then the comparison of their throughput."""
    from handson.tour import tour

    tour(folder or Path("results") / time.strftime("tour_%Y%m%d-%H%M%S"), [one.value for one in track], options, typer.echo)


@app.command()
def network(
    figure: Annotated[Path, typer.Option("-o", "--output", help="Where the figure goes, as .png and as .svg.")] = Path("network.png"),
    largest: Annotated[float, typer.Option(help="The largest message, in MB.")] = 16,
):
    """Measure the network between the ranks of a job: latency, bandwidth, all-reduce; started by mpiexec (jobs/pbs/run_network.sh)."""
    from handson.network import network

    network(figure, largest * 2**20, typer.echo)


@app.command()
def doctor():
    """Look for what keeps jobs from running, from the bottom up: this machine, then, in a job, the way to its other nodes."""
    from handson.doctor import doctor

    sys.exit(doctor(typer.echo))


@site.command("list")
def list_sites():
    """The sites that there are."""
    from handson.site import show_all

    show_all(typer.echo)


@site.command("show")
def show_site(name: Annotated[str | None, typer.Argument(help="A name that `list` shows; the chosen one by default.")] = None):
    """What a site wants to hear in job scripts."""
    from handson.site import show

    show(name, typer.echo)


@site.command("use")
def use_site(
    name: Annotated[str, typer.Argument(help="A name that `list` shows.")],
    solutions: Annotated[bool, typer.Option("--solutions", help="For instructors: fit the solutions in jobs/ too.")] = False,
):
    """Fit the job scripts to a site, but for the gaps, and say what belongs into those."""
    from handson.site import use

    use(name, not solutions, typer.echo)


def main():
    run(app, "handson")


if __name__ == "__main__":
    main()
