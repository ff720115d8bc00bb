"""The course's own commands: ``python -m handson COMMAND``. Each command imports what it needs when it runs."""

import sys

# a file in the working directory, such as a student's random.py, must not take the place of Python's own module
sys.path.append(sys.path.pop(0))

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from handson.errors import run
from handson.kubernetes import app as kubernetes

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, no_args_is_help=True, help=__doc__
)
site = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
app.add_typer(site, name="site", help="Fit the job scripts to a site: its queue, group, GPUs and modules.")
app.add_typer(
    kubernetes, name="kubernetes", help="Train in Kubernetes, with the scripts of task 3 (docs/kubernetes.md)."
)


class Track(StrEnum):
    pytorch = "pytorch"
    chainer = "chainer"


class Algorithm(StrEnum):
    ring = "ring"
    tree = "tree"
    hierarchical = "hierarchical"
    two_dimensional = "two_dimensional"


class Dtype(StrEnum):
    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"


class Tool(StrEnum):
    auto = "auto"
    nvprof = "nvprof"
    nsys = "nsys"
    torch = "torch"


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="A name of datasets/datasets.toml.")] = "cifar10_256px_5p",
    archive: Annotated[Path | None, typer.Option(help="The archive, if it is already on this machine.")] = None,
):
    """Download and prepare a data set, once."""
    from handson.training.prepare import prepare

    prepare(name, archive, typer.echo)


@app.command()
def images(
    name: Annotated[str, typer.Argument(help="A data set: a name of datasets/datasets.toml, or a path.")] = "digits",
    folder: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where they go; datasets/<name>_files by default.")
    ] = None,
):
    """Write the images of a data set as files, with map files (a path, a tab and a label on each line) that name
    them."""
    from handson.training.map_files import write

    write(name, folder, typer.echo)


@app.command()
def compare(
    outs: Annotated[list[Path], typer.Argument(metavar="OUT...", help="The output directories of training runs.")],
    figure: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="As which .png and .svg; by default in the folder of the last run."),
    ] = None,
):
    """Compare training runs: a table, and a figure of throughput and speed-up."""
    from handson.compare import compare

    compare(outs, figure, typer.echo)


@app.command(context_settings={"ignore_unknown_options": True})
def profile(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="What to record, as it would be started without.")
    ],
    tool: Annotated[
        Tool,
        typer.Option(
            help="auto: nvprof where it records the GPU, else nsys, else torch: PyTorch's profiler, Chainer's hooks."
        ),
    ] = Tool.auto,
    folder: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for the profiles; results/profile_<job> by default.")
    ] = None,
    skip: Annotated[int, typer.Option(min=2, help="Steps of each process to skip before recording.")] = 5,
    steps: Annotated[int, typer.Option(min=1, help="Steps to record then.")] = 30,
):
    """Record what every process of a training does: python -m handson profile -- python train.py. Read it with
    `timeline`."""
    from handson.profiling.tools import record

    record(command, tool.value, folder, skip, steps, typer.echo)


@app.command(context_settings={"ignore_unknown_options": True})
def torchrun(
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="torchrun's options, a script, its options.")],
):
    """Run torchrun on each node of this job: python -m handson torchrun --nproc-per-node 1 train.py."""
    from handson.cluster.torchrun_nodes import on_all_nodes

    raise typer.Exit(not on_all_nodes(words))


@app.command()
def timeline(
    profiles: Annotated[
        list[Path], typer.Argument(metavar="FILES...", help="Profiles, or folders of them: a folder is a run.")
    ],
    figure: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="As which .png and .svg; by default in the folder of the last run."),
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Also write all of it as a Chrome trace, for ui.perfetto.dev.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps to draw.")] = 3,
):
    """Show where the time of one or more runs goes: a table, a verdict, and a figure with one timeline above the
    other."""
    from handson.profiling.report import report

    report(profiles, figure, export, steps, typer.echo)


@app.command()
def explain(
    one: Annotated[Path, typer.Argument(help="The profiles of the run with fewer workers, mostly one.")],
    more: Annotated[Path, typer.Argument(help="Those of the same training with more workers.")],
    figure: Annotated[
        Path | None, typer.Option("-o", "--output", help="As which .png and .svg; by default in the folder of MORE.")
    ] = None,
):
    """Split the efficiency that a run with more workers loses: communication, imbalance, overhead of each step,
    contention."""
    from handson.profiling.explain import explain

    explain(one, more, figure, typer.echo)


@app.command()
def follow(job: Annotated[str, typer.Argument(help="The job's id, or its number.")]):
    """Follow a job: what it waits for, then its output while it runs, until it has ended. Ctrl-C ends the following;
    the job goes on."""
    from handson.cluster.follow import follow

    follow(job, say=typer.echo)


@app.command()
def submit(
    name: Annotated[str | None, typer.Option(help="Whose work it is; your login name by default.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Run the checks of all tasks before.")] = False,
    here: Annotated[
        bool, typer.Option("--here", help="Only write NAME.zip, also where the site has a folder to hand in.")
    ] = False,
):
    """Pack exercises and notebooks into NAME.zip, without results, and hand it in where the site has a folder for
    that."""
    from handson.submit import submit

    submit(name, checked=check, drop=not here, say=typer.echo)


@app.command()
def watch(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the samples to this file.")] = None,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2,
    count: Annotated[int | None, typer.Option(min=1, help="Looks to take; until Ctrl-C by default.")] = None,
):
    """Watch utilisation and memory of the GPUs of this machine, or of its virtual ones, while a job runs."""
    from handson.profiling.watch import watch

    watch(output, interval, count, typer.echo)


@app.command()
def memory(
    outs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="The output directories of training runs with --gpu-memory.")
    ],
    figure: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="As which .png and .svg; by default in the folder of the last run."),
    ] = None,
    predicted: Annotated[
        str, typer.Option(metavar="PARTS", help="Your own numbers, such as parameters=1.5MB,activations=20MB.")
    ] = "",
):
    """Show what the memory of each rank's GPU holds: a table against what formulas predict, and a figure of one
    step."""
    from handson.memory import report

    report(outs, figure, predicted, typer.echo)


@app.command()
def network(
    figure: Annotated[Path, typer.Option("-o", "--output", help="Where the figure goes, as .png and as .svg.")] = Path(
        "network.png"
    ),
    largest: Annotated[float, typer.Option(help="The largest message, in MB.")] = 16,
):
    """Measure the network between the ranks of a job: latency, bandwidth, all-reduce; started by mpiexec
    (jobs/pbs/run_network.sh)."""
    from handson.cluster.network import network

    network(figure, largest * 2**20, typer.echo)


@app.command()
def predict(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUNS...",
            help="Folders of training runs, with one worker and with more; network*.json of `network`.",
        ),
    ],
    workers: Annotated[str, typer.Option(help="Numbers of workers; ... goes on doubling.")] = "1,2,4,...,512",
    network: Annotated[
        str | None, typer.Option(help="The rate of each node's network, such as 25gbit; that of the runs by default.")
    ] = None,
    latency: Annotated[
        float | None, typer.Option(min=0, help="Microseconds of a message between nodes; as measured by default.")
    ] = None,
    per_node: Annotated[
        int | None, typer.Option(min=1, help="Workers on each node; as in the runs by default.")
    ] = None,
    algorithm: Annotated[Algorithm, typer.Option(help="How the gradients are added up.")] = "ring",
    dtype: Annotated[
        Dtype | None, typer.Option(help="In which the gradients travel; as in the runs by default.")
    ] = None,
    double_buffering: Annotated[
        bool, typer.Option("--double-buffering", help="Send the gradients while the next step computes.")
    ] = False,
    batchsize: Annotated[
        int | None, typer.Option("-b", "--batchsize", min=1, help="Per worker; as in the runs by default.")
    ] = None,
    parameters: Annotated[
        int | None, typer.Option(min=1, help="Numbers in a gradient, for runs that do not say.")
    ] = None,
    accuracy: Annotated[
        float | None, typer.Option(min=0, max=1, help="Also predict the seconds and node-hours to this accuracy.")
    ] = None,
    efficiency: Annotated[float, typer.Option(min=0, max=1, help="How many workers does this efficiency allow?")] = 0.8,
    start_up: Annotated[
        float, typer.Option(min=0, help="Seconds before the first step, for the time to an accuracy.")
    ] = 0,
    figure: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="As which .png and .svg; by default in the folder of the run with most workers."
        ),
    ] = None,
):
    """Predict the throughput of many workers from measured runs of a few, with a band: a table, what limits it, and a
    figure."""
    from handson.scaling.predict import command

    how = algorithm.value, dtype and dtype.value, double_buffering, batchsize
    command(
        paths, workers, network, latency, per_node, *how, parameters, accuracy, efficiency, start_up, figure, typer.echo
    )


@app.command()
def rehearse(
    run: Annotated[Path, typer.Argument(help="The folder of a run of one worker.")],
    steps: Annotated[int, typer.Option(min=1, help="Steps to take.")] = 40,
    dtype: Annotated[Dtype, typer.Option(help="In which the gradients travel.")] = "float32",
    double_buffering: Annotated[
        bool, typer.Option("--double-buffering", help="Send the gradients while the next step computes.")
    ] = False,
    overlap: Annotated[
        bool, typer.Option("--overlap", help="Send each bucket of gradients when backward has filled it.")
    ] = False,
    parameters: Annotated[int | None, typer.Option(min=1, help="Numbers in a gradient, instead of the run's.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the steps.")] = 0,
    out: Annotated[Path, typer.Option("-o", "--out", help="Where result.json goes.")] = Path("results/rehearsal"),
):
    """Take a run's steps with more workers than there are cores: ranks sleep instead of computing, and all-reduce;
    started by mpiexec."""
    from handson.scaling.rehearse import rehearse

    rehearse(run, steps, out, dtype.value, double_buffering, overlap, parameters, seed, typer.echo)


@app.command()
def doctor():
    """Find out what keeps jobs from running, from the bottom up: first this machine, then, in a job, the way to its
    other nodes."""
    from handson.cluster.doctor import doctor

    sys.exit(doctor(typer.echo))


@site.command("list")
def list_sites():
    """List the sites."""
    from handson.cluster.job_scripts import show_all

    show_all(typer.echo)


@site.command("show")
def show_site(
    name: Annotated[str | None, typer.Argument(help="A name that `list` shows; the chosen one by default.")] = None,
):
    """Show what job scripts need at a site."""
    from handson.cluster.job_scripts import show

    show(name, typer.echo)


@site.command("use")
def use_site(
    name: Annotated[str, typer.Argument(help="A name that `list` shows.")],
    solutions: Annotated[
        bool, typer.Option("--solutions", help="For instructors: fit the solutions of gaps, too.")
    ] = False,
):
    """Fit the job scripts to a site, except the gaps, and print what to write into those."""
    from handson.cluster.job_scripts import use

    use(name, not solutions, typer.echo)


if Path(__file__).with_name("instructors").is_dir():  # students don't receive it

    @app.command()
    def tour(
        folder: Annotated[
            Path | None, typer.Option("-o", "--output", help="Where it all goes; results/tour_<time> by default.")
        ] = None,
        track: Annotated[list[Track], typer.Option(help="May be repeated; both by default.")] = list(Track),
        options: Annotated[
            str, typer.Option(help="Options for the training scripts; without -e 2, they run the lecture's 4 epochs.")
        ] = "-e 2",
    ):
        """See it all work: the training of every unit by qsub, then the comparison of their throughput."""
        from handson.instructors.training_tour import tour

        tour(
            folder or Path("results") / time.strftime("tour_%Y%m%d-%H%M%S"),
            [one.value for one in track],
            options,
            typer.echo,
        )


def main():
    run(app, "handson")


if __name__ == "__main__":
    main()
