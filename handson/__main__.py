"""The course's commands, ``python -m handson COMMAND``. Each command imports its modules only when it runs."""

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
from handson.language import speak

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, no_args_is_help=True, help=__doc__
)
site = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
app.add_typer(site, name="site", help="Adapt the job scripts to a site: its queue, group, GPUs and modules.")
app.add_typer(
    kubernetes, name="kubernetes", help="Train in Kubernetes with the scripts of task 3 (docs/kubernetes.md)."
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


FigureInLastRun = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", help="Path of the figure, as .png and .svg. Default: in the folder of the last run."
    ),
]


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="Name of a data set in datasets/datasets.toml.")] = "cifar10_256px_5p",
    archive: Annotated[
        Path | None, typer.Option(help="Path of the archive, if it is already on this machine. Default: download it.")
    ] = None,
):
    """Download and prepare a data set; needed once."""
    from handson.training.prepare import prepare

    prepare(name, archive, speak)


@app.command()
def images(
    name: Annotated[
        str, typer.Argument(help="Name of a data set in datasets/datasets.toml, or path of an .npz file.")
    ] = "digits",
    folder: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for the images. Default: datasets/<name>_files.")
    ] = None,
):
    """Write the images of a data set as image files, with map files that list them (path, tab, label)."""
    from handson.training.map_files import write

    write(name, folder, speak)


@app.command()
def compare(
    outs: Annotated[list[Path], typer.Argument(metavar="OUT...", help="Result folders of training runs.")],
    figure: FigureInLastRun = None,
):
    """Compare training runs: print a table, and draw throughput and speed-up."""
    from handson.compare import compare

    compare(outs, figure, speak)


@app.command(context_settings={"ignore_unknown_options": True})
def profile(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="Command to record, written as usual.")],
    tool: Annotated[
        Tool,
        typer.Option(
            help="Recorder. auto: nvprof if it supports the GPU, else nsys, else torch (PyTorch's, or Chainer's hooks)."
        ),
    ] = Tool.auto,
    folder: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for the profiles. Default: results/profile_<job>.")
    ] = None,
    skip: Annotated[int, typer.Option(min=2, help="Number of steps per process to skip before recording.")] = 5,
    steps: Annotated[int, typer.Option(min=1, help="Number of steps per process to record.")] = 30,
):
    """Record every process of a training run: python -m handson profile -- python train.py. `timeline` shows the
    profiles."""
    from handson.profiling.tools import record

    record(command, tool.value, folder, skip, steps, speak)


@app.command(context_settings={"ignore_unknown_options": True})
def torchrun(
    words: Annotated[
        list[str], typer.Argument(metavar="WORDS...", help="Options of torchrun, a script, and the script's options.")
    ],
):
    """Run torchrun on each node of this job: python -m handson torchrun --nproc-per-node 1 train.py."""
    from handson.cluster.torchrun_nodes import on_all_nodes

    raise typer.Exit(not on_all_nodes(words))


@app.command()
def timeline(
    profiles: Annotated[
        list[Path], typer.Argument(metavar="FILES...", help="Profiles, or folders of profiles; each folder is one run.")
    ],
    figure: FigureInLastRun = None,
    export: Annotated[
        Path | None, typer.Option(help="Path of a Chrome trace of all runs, for ui.perfetto.dev. Default: none.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Number of steps to draw.")] = 3,
):
    """Show where the time of runs goes: print a table and a verdict, and draw the timelines at one scale."""
    from handson.profiling.report import report

    report(profiles, figure, export, steps, speak)


@app.command()
def explain(
    one: Annotated[Path, typer.Argument(help="Profiles of the run with fewer workers, usually one.")],
    more: Annotated[Path, typer.Argument(help="Profiles of the same training with more workers.")],
    figure: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Path of the figure, as .png and .svg. Default: in the folder of MORE."),
    ] = None,
):
    """Split the loss of efficiency with more workers into communication, imbalance, overhead per step and
    contention."""
    from handson.profiling.explain import explain

    explain(one, more, figure, speak)


@app.command()
def follow(job: Annotated[str, typer.Argument(help="Id or number of the job.")]):
    """Follow a job: show what it waits for, then its output until it has ended. After Ctrl-C, the job continues."""
    from handson.cluster.follow import follow

    follow(job, say=typer.echo)


@app.command()
def submit(
    name: Annotated[str | None, typer.Option(help="Name of the student. Default: your login name.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Run the checks of all tasks first.")] = False,
    here: Annotated[
        bool,
        typer.Option(
            "--here", help="Only write NAME.zip here, and do not copy it to the site's folder for submissions."
        ),
    ] = False,
):
    """Pack exercises and notebooks into NAME.zip, without results, and copy it to the site's folder for submissions, if
    there is one."""
    from handson.submit import submit

    submit(name, checked=check, drop=not here, say=speak)


@app.command()
def watch(
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Path of a file for the samples. Default: none.")
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two samples.")] = 2,
    count: Annotated[int | None, typer.Option(min=1, help="Number of samples to print. Default: until Ctrl-C.")] = None,
):
    """Print utilisation and memory of this machine's GPUs, or of its virtual GPUs, while a job runs."""
    from handson.profiling.watch import watch

    watch(output, interval, count, speak)


@app.command()
def memory(
    outs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Result folders of training runs with --gpu-memory.")
    ],
    figure: FigureInLastRun = None,
    predicted: Annotated[
        str,
        typer.Option(
            metavar="PARTS", help="Your prediction, such as parameters=1.5MB,activations=20MB. Default: formulas."
        ),
    ] = "",
):
    """Show what fills the memory of each rank's GPU: compare it with formulas in a table, and draw one step."""
    from handson.memory import report

    report(outs, figure, predicted, speak)


@app.command()
def network(
    figure: Annotated[
        Path, typer.Option("-o", "--output", help="Path of the figure, which is written as .png and .svg.")
    ] = Path("network.png"),
    largest: Annotated[float, typer.Option(help="Size of the largest message in MB.")] = 16,
):
    """Measure the network between the ranks of a job: latency, bandwidth and all-reduce. Start it with mpiexec
    (jobs/pbs/run_network.sh)."""
    from handson.cluster.network import network

    network(figure, largest * 2**20, speak)


@app.command()
def predict(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUNS...",
            help="Result folders of training runs with one worker and with more; files network*.json of `network`.",
        ),
    ],
    workers: Annotated[
        str, typer.Option(help="Numbers of workers to predict; ... continues by doubling.")
    ] = "1,2,4,...,512",
    network: Annotated[
        str | None, typer.Option(help="Network rate of each node, such as 25gbit. Default: the rate of the runs.")
    ] = None,
    latency: Annotated[
        float | None,
        typer.Option(min=0, help="Latency of a message between nodes in microseconds. Default: as measured."),
    ] = None,
    per_node: Annotated[
        int | None, typer.Option(min=1, help="Number of workers per node. Default: as in the runs.")
    ] = None,
    algorithm: Annotated[Algorithm, typer.Option(help="All-reduce algorithm.")] = "ring",
    dtype: Annotated[
        Dtype | None, typer.Option(help="Data type of the gradients on the network. Default: as in the runs.")
    ] = None,
    double_buffering: Annotated[
        bool, typer.Option("--double-buffering", help="Send the gradients during the next step.")
    ] = False,
    batchsize: Annotated[
        int | None, typer.Option("-b", "--batchsize", min=1, help="Batch size per worker. Default: as in the runs.")
    ] = None,
    parameters: Annotated[
        int | None, typer.Option(min=1, help="Number of parameters, for runs that do not record it.")
    ] = None,
    accuracy: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Accuracy to which seconds and node-hours are predicted. Default: none."),
    ] = None,
    efficiency: Annotated[
        float, typer.Option(min=0, max=1, help="Efficiency for which the largest number of workers is predicted.")
    ] = 0.8,
    start_up: Annotated[
        float, typer.Option(min=0, help="Seconds before the first step, added to the time to --accuracy.")
    ] = 0,
    figure: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Path of the figure, as .png and .svg. Default: in the folder of the largest run."
        ),
    ] = None,
):
    """Predict the throughput of many workers from measured runs of a few, with an uncertainty band: print a table and
    the bottleneck, and draw a figure."""
    from handson.scaling.predict import command

    how = algorithm.value, dtype and dtype.value, double_buffering, batchsize
    command(paths, workers, network, latency, per_node, *how, parameters, accuracy, efficiency, start_up, figure, speak)


@app.command()
def rehearse(
    run: Annotated[Path, typer.Argument(help="Result folder of a run with one worker.")],
    steps: Annotated[int, typer.Option(min=1, help="Number of steps to run.")] = 40,
    dtype: Annotated[Dtype, typer.Option(help="Data type of the gradients on the network.")] = "float32",
    double_buffering: Annotated[
        bool, typer.Option("--double-buffering", help="Send the gradients during the next step.")
    ] = False,
    overlap: Annotated[
        bool, typer.Option("--overlap", help="Send each bucket of gradients as soon as backward has filled it.")
    ] = False,
    parameters: Annotated[int | None, typer.Option(min=1, help="Number of parameters. Default: as in the run.")] = None,
    seed: Annotated[int, typer.Option(help="Seed that draws the steps.")] = 0,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for result.json.")] = Path("results/rehearsal"),
):
    """Repeat a run's steps with more workers than there are cores: the ranks sleep instead of computing, but all-reduce
    real gradients. Start it with mpiexec."""
    from handson.scaling.rehearse import rehearse

    rehearse(run, steps, out, dtype.value, double_buffering, overlap, parameters, seed, speak)


@app.command()
def doctor():
    """Find out why jobs do not run: check this machine, and, in a job, the connections to its other nodes."""
    from handson.cluster.doctor import doctor

    sys.exit(doctor(speak))


@site.command("list")
def list_sites():
    """List the sites."""
    from handson.cluster.job_scripts import show_all

    show_all(speak)


@site.command("show")
def show_site(
    name: Annotated[
        str | None, typer.Argument(help="Name of a site, as listed by `list`. Default: the chosen site.")
    ] = None,
):
    """Show the requirements of job scripts at a site."""
    from handson.cluster.job_scripts import show

    show(name, speak)


@site.command("use")
def use_site(
    name: Annotated[str, typer.Argument(help="Name of a site, as listed by `list`.")],
    solutions: Annotated[
        bool, typer.Option("--solutions", help="For instructors: also rewrite the solutions of gaps.")
    ] = False,
):
    """Rewrite the job scripts for a site, and print the lines that students write into the gaps."""
    from handson.cluster.job_scripts import use

    use(name, not solutions, speak)


if Path(__file__).with_name("instructors").is_dir():  # students don't receive it

    @app.command()
    def tour(
        folder: Annotated[
            Path | None, typer.Option("-o", "--output", help="Folder for all results. Default: results/tour_<time>.")
        ] = None,
        track: Annotated[list[Track], typer.Option(help="Track to run; may be repeated.")] = list(Track),
        options: Annotated[
            str,
            typer.Option(help="Options for the training scripts. Without -e 2, they train for the lecture's 4 epochs."),
        ] = "-e 2",
    ):
        """Submit the training jobs of all units, and compare their throughput."""
        from handson.instructors.training_tour import tour

        tour(
            folder or Path("results") / time.strftime("tour_%Y%m%d-%H%M%S"),
            [one.value for one in track],
            options,
            speak,
        )


def main():
    run(app, "handson")


if __name__ == "__main__":
    main()
