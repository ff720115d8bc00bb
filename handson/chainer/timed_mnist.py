"""Helpers of train_mnist.py: the times of the four parts of a ChainerMN iteration (forward, backward, all-reduce,
optimize), and its options.

The script trains with `TimedUpdater` instead of Chainer's StandardUpdater, and `report` prints and draws the times.
"""

import time
from pathlib import Path

from handson.chainer import devices

import numpy
from chainer.training.updaters import StandardUpdater

from handson import figures
from handson.files import written_aside
from handson.training import banner, options, progress

PARTS = ("forward", "backward", "all-reduce", "optimize")


class TimedUpdater(StandardUpdater):
    """StandardUpdater with a clock, for a multi-node optimizer without double buffering, whose parts would overlap.

    `steps`: the seconds of PARTS in each update, except the first one, which only makes parameters equal.
    """

    def __init__(self, iterator, optimizer, **options):
        super().__init__(iterator, optimizer, loss_func=self._forward, **options)
        self.steps, self._times = [], []
        # ChainerMN's optimizers pass ordinary attributes to the actual optimizer
        vars(optimizer)["communicator"] = _TimedCommunicator(optimizer.communicator, self._note_time)

    def update_core(self):
        self._times.clear()
        super().update_core()
        self._note_time()
        progress.progress()
        if len(self._times) == len(PARTS) + 1:
            self.steps.append(numpy.diff(self._times).tolist())

    def _forward(self, *batch):
        self._note_time()
        loss = self.get_optimizer("main").target(*batch)
        self._note_time()
        return loss

    def _note_time(self):
        devices.finish()
        self._times.append(time.perf_counter())


class _TimedCommunicator:
    """A communicator that calls `note_time` before and after the all-reduce."""

    def __init__(self, communicator, note_time):
        self._communicator, self._note_time = communicator, note_time

    def __getattr__(self, name):
        return getattr(self._communicator, name)

    def multi_node_mean_grad(self, *arguments):
        self._note_time()
        self._communicator.multi_node_mean_grad(*arguments)
        self._note_time()


def parse(description):
    """Return the options of train_mnist.py."""
    parser = options.OneSentenceParser(description=description)
    add, number = parser.add_argument, options.positive(int)
    add("-b", "--batchsize", type=number, default=32, metavar="N", help="batch size per worker. Default: 32")
    add("-e", "--epoch", type=number, default=10, metavar="N", help="number of epochs. Default: 10")
    add(
        "-g",
        "--gpu",
        type=options.gpu_ids,
        metavar="IDS",
        help="ids of the GPUs, or virtual GPUs, such as 0,1. Default: one per rank",
    )
    add("-u", "--unit", type=number, default=1000, metavar="N", help="number of units per hidden layer. Default: 1000")
    options.add_out(parser, "mnist", "chainer")
    args = parser.parse_args()
    options.make_out(parser, args.out)
    return args


def announce(comm, args, devices):
    """Print the first lines of a run on rank 0. devices: the names of the devices."""
    if comm.rank == 0:
        print(f"Num process (COMM_WORLD): {comm.size}\nUsing {devices}\nUsing {comm.name} communicator")
        print(f"Num unit: {args.unit}\nNum Minibatch-size: {args.batchsize}\nNum epoch: {args.epoch}", flush=True)
        args.workers = comm.size
        banner.warn(args, comm)


def report(updater, comm, out):
    """Print the mean times of the four parts on rank 0, and draw them as steps.png and steps.svg in `out`. All ranks
    must call it."""
    everybodys = comm.mpi_comm.gather(updater.steps)
    if comm.rank != 0:
        return
    milliseconds = 1000 * numpy.array(everybodys)  # (ranks, steps, parts)
    if milliseconds.size == 0:
        print("Mean time of a step: there was none after the one that makes parameters equal")
        return
    print(sentence(milliseconds))
    draw(milliseconds, Path(out))


def sentence(milliseconds):
    """Return a sentence on the mean times of the four parts over all ranks and steps. milliseconds: (ranks, steps,
    parts)."""
    ranks, steps, _ = milliseconds.shape
    parts = ", ".join(f"{part} {mean:.2f} ms" for part, mean in zip(PARTS, milliseconds.mean((0, 1))))
    return f"Mean time of a step ({ranks} rank{'s' * (ranks > 1)}, {steps} step{'s' * (steps > 1)}): {parts}"


def draw(milliseconds, out):
    """Draw the mean times of each rank, and those of each step, as steps.png and steps.svg in the folder `out`."""
    import matplotlib

    drawing, left, right = figures.axes(10, 4, columns=2, grid=False)
    of_ranks, of_steps, begins = milliseconds.mean(1), *_at_most_100(milliseconds.mean(0))
    iterations = begins + 1.5  # iterations count from 1, and the first one was not a step
    for index, part in enumerate(PARTS):
        label = f"{part}, and waiting for other ranks" if part == "all-reduce" else part
        style = figures.part(part) | {"label": label}
        before = of_ranks[:, :index].sum(1)
        left.barh(range(len(of_ranks)), of_ranks[:, index], 0.6, before, **style)
        before = of_steps[:, :index].sum(1)
        right.stairs(before + of_steps[:, index], iterations, baseline=before, fill=True, **style)
    left.set(xlabel="time of a step [ms], mean over all steps", ylabel="rank", yticks=range(len(of_ranks)))
    left.invert_yaxis()
    right.set(
        xlabel="iteration", ylabel="time of a step [ms], mean over all ranks", xlim=(iterations[0], iterations[-1])
    )
    right.xaxis.get_major_locator().set_params(integer=True)
    drawing.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=len(PARTS), edgecolor="none")
    description = f"Time of the four parts of a training step, by rank and by iteration. {sentence(milliseconds)}."
    with matplotlib.rc_context({"svg.hashsalt": "handson"}):
        for kind, metadata in ("png", {}), ("svg", {"Date": None}):
            with written_aside(out / f"steps.{kind}") as file:
                drawing.savefig(file, format=kind, dpi=150, metadata=metadata | {"Description": description})


def _at_most_100(steps):
    """Return the means of neighbouring rows of `steps`, at most 100 for a figure, and where they begin and end."""
    together = -(-len(steps) // 100)
    begins = numpy.arange(0, len(steps), together)
    ends = numpy.append(begins[1:], len(steps))
    return numpy.add.reduceat(steps, begins) / (ends - begins)[:, None], numpy.append(begins, len(steps))
