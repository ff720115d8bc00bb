"""``python -m handson compare OUT...``: compare training runs, in a table and a figure.

Repeats of a run (same script, track, workers, conditions and way to communicate) become one row with the median of
their throughputs, so that one run on an overloaded machine changes little. The speed-up is relative to the single-GPU
run of the same track under the same conditions. Another script than the lecture's, and profiling, are conditions, too.
"""

import re
import statistics
from dataclasses import dataclass
from pathlib import Path

from handson import figures
from handson.language import marked, speak, translated
from handson.training import identity
from handson.training.banner import SHARED_GPU
from handson.training.options import LEARNING_RATE
from handson.training.results import OldResult, read
from handson.words import counted, ljust, rjust, width

TRAINING = "train_cifar"  # the names of the lecture's scripts begin with it
# conditions that must be equal in compared runs: name -> a Result's value in words; "" for the usual value
CONDITIONS = marked(
    {
        "data set": lambda run: run.dataset,
        "image size": lambda run: marked(f"{run.size} px"),
        "network to train": lambda run: "" if run.model in (None, "convnet") else run.model,
        "batch size": lambda run: f"batch {run.batchsize} per worker",
        "number of epochs": lambda run: counted(run.epochs, "epoch"),
        "kind of GPU": lambda run: (
            "virtual GPUs"
            if "virtual" in run.device
            else f"{' '.join(re.findall('1/[0-9]+ of', run.device))} GPUs".strip()
        ),
        "script": lambda run: "" if run.training == TRAINING else f"another script than the lecture's: {run.training}",
        "recording": lambda run: marked("profiled") if run.profiled else "",
        "counting of memory": lambda run: "memory counted" if run.memory and "virtual" in run.device else "",
        "learning rate": lambda run: "" if run.lr == LEARNING_RATE else f"learning rate {run.lr:g}",
    }
)
COMMUNICATION = {  # properties that also separate rows, except the single-GPU run with which all are compared
    "network": lambda run: run.network,
    "communicator": lambda run: (
        "" if run.communicator in USUAL["virtual" in run.device] else marked(f"communicator {run.communicator}")
    ),
    "type of gradients": lambda run: f"{run.gradients} gradients" if run.gradients else "",
    "double buffering": lambda run: "double buffering" if run.double_buffering else "",
    "equal ranks": lambda run: "the ranks differ" if run.unequal else "",
    "sharing": lambda run: " ".join(re.findall(r"sharing \d+ cores?|shared by (?:several|\d+) workers", run.device)),
}
# communicators on real or virtual GPUs
USUAL = {True: ("", "gloo", "naive", "gRPC"), False: ("", "nccl", "pure_nccl", "gRPC")}
# methods, of which a single-worker run is the reference for all others
PLAIN = ("", "communicator plain", "communicator ddp")
# series in a figure's legend, and letters of each, for which it has room
IN_LEGEND, LONGEST = 12, 60
SHOWN = 5  # disturbed runs that are named
TOLERANCE = 1.1  # a speed-up this many times the highest possible one is a measurement error
LECTURE = {1: 51.1, 2: 87.6, 4: 172.1}  # workers -> images/s, as the lecture reports from Reedbush
HEADINGS = marked(
    ("task", "track", "workers", "runs", "images/s", "speed-up", "efficiency", "val. loss", "val. accuracy")
)
LINES = ("-", "-.", (0, (5, 1)), (0, (3, 1, 1, 1)))  # styles of a track's first, second, ... conditions


@dataclass
class Row:
    """All runs of one script, track and number of workers under the same conditions; unknown values are None."""

    name: str  # the unit, or the script: see Result
    track: str
    workers: int
    nodes: int
    conditions: tuple  # texts in the order of CONDITIONS
    communication: tuple  # texts in the order of COMMUNICATION
    throughputs: list  # images/s of each repeat
    disturbed: list  # the repeats that other programs disturbed
    loss: float | None  # the validation loss after the last epoch, as the mean of the repeats
    accuracy: float | None
    speedup: float | None = None  # the throughput divided by the throughput of one worker

    @property
    def throughput(self):
        """The median of the repeats in images/s."""
        return statistics.median(self.throughputs)

    @property
    def spread(self):
        """The standard deviation of the repeats in images/s."""
        return statistics.stdev(self.throughputs) if len(self.throughputs) > 1 else None

    @property
    def efficiency(self):
        """The speed-up divided by the number of workers."""
        return self.speedup and self.speedup / self.workers


def compare(outs, figure_path=None, say=speak):
    """Read the runs in the directories `outs`, `say` the table line by line, and draw the figure: in the last of these
    directories, if `figure_path` is None. Raises ResultError or FigureError.

    A directory without a result, because its run failed or has not ended, is left out and named. If no directory has a
    result, this is an error.
    """
    outs = [Path(out) for out in {Path(out).resolve(): out for out in outs}.values()]
    # `results/*` may name other files, too
    outs = [out for out in outs if not out.is_file() or out.suffix == ".json"] or outs
    ended = [out for out in outs if not out.exists() or out.suffix == ".json" or (out / "result.json").exists()]
    results, old = [], []
    for out in ended or outs:
        try:
            results.append(read(out))
        except OldResult as error:
            old.append(error)
    if old and not results:
        raise old[0]
    unfinished = [out for out in outs if out not in ended]
    if len(unfinished) == 1:
        say(f"{unfinished[0]} is left out: it has no result.json, which a run writes when it ends well.")
    elif unfinished:
        say(
            f"{len(unfinished)} of {len(outs)} folders are left out, such as {unfinished[0]}: they have no result.json,"
            " which a run writes when it ends well."
        )
    for error in old:
        say(f"Left out: {error}.")
    for line in text(table(results)) + remarks(results):
        say(line)
    path = figures.place(figure_path, results[-1].folder, "throughput.png")
    say(figures.told(figure(results, path)))


def remarks(results):
    """Return sentences on workers that share cores, on impossible speed-ups, and on runs that other programs
    disturbed."""
    return shared_cores(results) + impossible(results) + unequal(results) + disturbed(results)


def impossible(results):
    """Return a sentence for each row whose speed-up exceeds its number of workers, or of the cores that they share."""
    sentences = []
    for row in table(results):
        shared = re.search(r"sharing (\d+)", row.communication[-1])
        most = int(shared[1]) if shared else row.workers
        another_method = row.workers == 1 and _communicator(row)  # a method that may be faster than the plain one
        if row.speedup and row.speedup > TOLERANCE * most and not another_method:
            what = counted(most, "core") if shared else counted(most, "worker")
            sentences.append(
                f"The speed-up of {row.name} ({row.track}), {row.speedup:.2f}, is more than {what} can reach. Either"
                " something slowed down the single-GPU run, or the runs differ: repeat both while the machine does"
                " nothing else."
            )
    return sentences


def _communicator(row):
    """Return how the workers of a row communicate, or the method of a script with several, or "" for the usual one."""
    return row.communication[list(COMMUNICATION).index("communicator")]


def unequal(results):
    """Return a sentence for each run whose ranks end with different parameters."""
    return [
        f"{run.folder or run.name}: {run.unequal} Each rank trained its own network, so this is not data-parallel"
        " training."
        for run in results
        if run.unequal
    ]


def disturbed(results):
    """Return sentences that name the runs that other programs disturbed, and explain how to leave them out."""
    runs = [run for run in results if run.disturbance]
    sentences = [f"{run.folder or run.name}: {run.disturbance}." for run in runs[:SHOWN]]
    if len(runs) > SHOWN:
        more = len(runs) - SHOWN
        sentences.append(f"Other programs disturbed {counted(more, 'more run')}.")
    if runs:
        sentences.append(
            "The times of such a run are unreliable: repeat it while the machine does nothing else. To leave a run out,"
            " delete its folder, or move it out of `results`."
        )
    return sentences


def note(drawing, results):
    """Write below a figure of `results` how many of them other programs disturbed. Return the sentence for the
    alternative text; "" if there were none."""
    runs = [run for run in results if run.disturbance]
    if not runs:
        return ""
    worst = max(run.disturbance for run in runs)
    words = f"In {len(runs)} of {counted(len(results), 'run')}, {worst.words(len(runs))}"
    drawing.supxlabel(words, fontsize="small", color=figures.PREDICTED, parse_math=False)
    return f" {words}."


def shared_cores(results):
    """Return a sentence for each script that had more workers than cores or GPUs, according to the device of its
    Result."""
    shared = {(run.name, run.workers): re.search(r"sharing (\d+) core", run.device) for run in results}
    sentences = [
        f"The {workers} workers of {name} share {found[1]} core{'s' * (found[1] != '1')} here: a speed-up of {found[1]}"
        " is the most they can reach."
        for (name, workers), found in shared.items()
        if found
    ]
    of_gpus = dict.fromkeys((run.name, run.workers) for run in results if "shared by" in run.device)
    return sentences + [f"The {workers} workers of {name} {SHARED_GPU}." for name, workers in of_gpus]


def most_cores(results):
    """Return the number of cores of the virtual GPUs of these runs, if there are fewer cores than workers; otherwise
    None."""
    shared = [int(found[1]) for run in results if (found := re.search(r"sharing (\d+) core", run.device))]
    return max(shared, default=None)


def conditions(run):
    """Return the conditions that must be equal in compared runs, as texts."""
    return tuple(describe(run) for describe in CONDITIONS.values())


def communication(run):
    """Return how the workers of a run communicated and shared cores, as texts."""
    return tuple(describe(run) for describe in COMMUNICATION.values())


def table(results):
    """Return the rows of the table of `results`, sorted by track, conditions and workers."""
    groups = {}
    for run in results:
        groups.setdefault(
            (run.track, conditions(run), run.workers, run.name, run.nodes, communication(run)), []
        ).append(run)
    rows = []
    for (track, under, workers, name, nodes, by), runs in sorted(
        groups.items(), key=lambda group: (group[0][0] != "pytorch", group[0])
    ):
        loss, accuracy = _final(runs, "validation/main/loss"), _final(runs, "validation/main/accuracy")
        rates, disturbed = (
            [run.throughput for run in some] for some in (runs, [run for run in runs if run.disturbance])
        )
        rows.append(Row(name, track, workers, nodes, under, by, rates, disturbed, loss, accuracy))
    alone = [row for row in rows if row.workers == 1]
    # the last one counts: the lecture's script, the plain method
    alone.sort(key=lambda row: (row.name == "single_gpu", _communicator(row) in PLAIN))
    single = {(row.track, row.conditions): row.throughput for row in alone}
    for row in rows:
        if baseline := single.get((row.track, row.conditions)):
            row.speedup = row.throughput / baseline
    return rows


def _final(runs, name):
    """Return the mean of `name` in the last epoch of `runs`, or None if a run lacks it."""
    values = [run.log[-1].get(name) if run.log else None for run in runs]
    return None if None in values else statistics.fmean(values)


def text(rows):
    """Return the table as lines of aligned text, followed by a sentence for each fact without a column."""
    common, own = _common_and_own(rows)
    own = [", ".join(filter(None, (condition, _disturbed(row)))) for row, condition in zip(rows, own)]
    cells = [tuple(map(translated, HEADINGS + marked(("conditions",)) * any(own)))] + [
        _cells(row) + (translated(condition),) * any(own) for row, condition in zip(rows, own)
    ]
    widths = [max(map(width, column)) for column in zip(*cells)]
    justify = [ljust] * 3 + [rjust] * 6 + [ljust]
    lines = ["  ".join(put(word, most) for put, word, most in zip(justify, line, widths)).rstrip() for line in cells]
    lines = [f"Conditions: {common}", lines[0], "-" * max(map(width, lines)), *lines[1:]]
    if differing := [
        name for name, values in zip(CONDITIONS, zip(*(row.conditions for row in rows))) if len(set(values)) > 1
    ]:
        lines.append(
            f"Warning: the runs differ in {' and '.join(differing)}: compare only those under the same conditions."
        )
    if lonely := list(dict.fromkeys(row.track for row in rows if row.speedup is None)):
        lines.append(
            f"There is no speed-up without a single-GPU run under the same conditions (track {' and '.join(lonely)}):"
            " add it."
        )
    return lines


def _common_and_own(rows):
    """Return the conditions that all `rows` share, as one text, and for each row a text with its other conditions."""
    shared = [len(set(values)) == 1 for values in zip(*(row.conditions for row in rows))]
    own = [
        ", ".join([text for text, same in zip(row.conditions, shared) if text and not same] + _way(row, rows))
        for row in rows
    ]
    return ", ".join(text for text, same in zip(rows[0].conditions, shared) if text and same) or "none in common", own


def _way(row, rows):
    """Return how the workers of a row communicate, as texts. The sharing of cores is included only if similar rows
    differ in it."""
    sharing = {
        other.communication[-1]
        for other in rows
        if (other.name, other.track, other.workers, other.nodes) == (row.name, row.track, row.workers, row.nodes)
    }
    texts = row.communication if len(sharing) > 1 else row.communication[:-1]
    return [text for text in texts if text]


def _disturbed(row):
    """Return how many runs of a row other programs disturbed, in words."""
    repeats = len(row.throughputs)
    if not row.disturbed:
        return ""
    number = len(row.disturbed)
    return marked(f"{number} of {repeats} disturbed") if repeats > 1 else marked("disturbed")


def _cells(row):
    """Return one line of the table, as texts."""

    def number(value, digits):
        return "-" if value is None else f"{value:.{digits}f}"

    each, more = divmod(row.workers, row.nodes)  # mpiexec distributes ranks evenly, starting with the first node
    where = " + ".join([f"{each + 1}"] * more + [f"{each}"] * (row.nodes - more)) if more else f"{row.nodes} x {each}"
    return (
        row.name,
        row.track,
        f"{row.workers} ({where})",
        str(len(row.throughputs)),
        f"{row.throughput:.1f}" + (f" ± {row.spread:.1f}" if row.spread is not None else ""),
        number(row.speedup, 2),
        number(row.efficiency, 3),
        number(row.loss, 4),
        number(row.accuracy, 4),
    )


def figure(results, path):
    """Draw throughput and speed-up against workers, as `path` with .png and with .svg; return both. Raises
    FigureError."""
    drawing, description = draw(results)
    return figures.save(drawing, Path(path), description)


def picture(results, predicted=None):
    """Return the same figure for a notebook. predicted: workers -> the speed-up that a student expects."""
    return figures.picture(*draw(results, predicted))


def draw(results, predicted=None):
    """Return the figure of throughput and speed-up against workers, and its description."""
    rows = table(results)
    predicted = predicted or {}
    common, own = _common_and_own(rows)
    workers = sorted({row.workers for row in rows})
    drawing, left, right = figures.axes(10, 4.6, columns=2)
    drawing.get_layout_engine().set(wspace=0.06)
    drawing.suptitle(common, fontsize="medium", parse_math=False)
    series = {}
    for row, condition in zip(rows, own):
        series.setdefault((row.track, condition), []).append(row)
    series = _by_script(series, {run.name for run in results if run.unit == identity.OTHER_SYSTEMS})
    for track, condition in series:
        look = figures.TRACKS.get(track, dict(label=track, color="black", marker="D"))
        nth = [key for key in series if key[0] == track].index((track, condition))
        style = look | dict(linestyle=LINES[nth % len(LINES)], label=_label(look["label"], condition))
        _draw(left, right, series[track, condition], style)
    if any(row.speedup for row in rows):
        left.plot([], [], **figures.IDEAL)  # adds the legend's entry, one per track
    else:
        right.text(0.98, 0.03, "no single-GPU run to compare with", ha="right", transform=right.transAxes)
    _mark(left, right, rows)
    draw_ideal(right, workers[-1], most_cores(results))
    if predicted:
        right.plot(*zip(*predicted.items()), **figures.FORESEEN)
    for axes, label in (left, "throughput [images/s]"), (right, "speed-up over one worker"):
        axes.set(
            xlabel="workers", xticks=workers, xticklabels=[_tick(rows, number) for number in workers], ylabel=label
        )
        axes.set(xlim=(0, 1.06 * workers[-1]), ylim=(0, None))
        lines, names = axes.get_legend_handles_labels()
        if len(names) > IN_LEGEND:
            lines, names = (
                lines[:IN_LEGEND],
                [*names[: IN_LEGEND - 1], f"and {len(names) - IN_LEGEND + 1} more: see the table"],
            )
        for name in axes.legend(lines, names, loc="upper left", fontsize="small", edgecolor="none").get_texts():
            name.set_parse_math(False)
    words = "Throughput and speed-up against workers. " + " ".join(_sentence(row) for row in rows)
    words += "".join(f" Predicted with {number} workers: {value:.2f}." for number, value in predicted.items())
    return drawing, words + note(drawing, results)


def draw_ideal(axes, most, cores=None):
    """Draw the ideal speed-up of up to `most` workers, the lecture's, and, if the workers share `cores`, the speed-up
    that these allow."""
    axes.plot([1, most], [1, most], **figures.IDEAL, zorder=1)
    if cores:
        axes.plot([1, cores, most], [1, cores, cores], **figures.CORES, zorder=1)
    lecture = {number: rate / LECTURE[1] for number, rate in LECTURE.items() if number <= most}
    style = dict(color="0.6", marker="s", zorder=1, label="the lecture, 1 to 4 GPUs")
    axes.plot(list(lecture), list(lecture.values()), **style)


def _by_script(series, names):
    """Return the series of rows. If scripts called `names` have the same number of workers, each gets its own series,
    which starts with the row of one worker."""
    found = {}
    for (track, condition), rows in series.items():
        several = [row for row in rows if row.workers > 1]
        if len({row.workers for row in several}) == len(several) or not names.issuperset(row.name for row in rows):
            found[track, condition] = rows
            continue
        for name in dict.fromkeys(row.name for row in several):
            words = ", ".join(filter(None, (name.replace("_", " "), condition)))
            found[track, words] = [row for row in rows if row.workers == 1] + [
                row for row in several if row.name == name
            ]
    return found


def _label(name, condition):
    """Return the label of a series in the legend: a track and its conditions, of which the last ones differ most
    often."""
    whole = ", ".join(filter(None, (name, condition)))
    return whole if len(whole) <= LONGEST else f"{name}, ... {whole[len(name) + 6 - LONGEST :]}"


def _draw(left, right, rows, style):
    """Draw a track: each repeat and the medians on the left, the speed-up on the right."""
    repeats = [(row.workers, rate) for row in rows for rate in row.throughputs]
    left.plot([row.workers for row in rows], [row.throughput for row in rows], **style | {"marker": "", "label": None})
    left.plot(*zip(*repeats), **style | {"linestyle": "", "markerfacecolor": "none", "label": None})
    left.plot([], [], **style, markerfacecolor="none")  # adds an entry to the legend
    known = [row for row in rows if row.speedup]
    if not known:
        return
    one, most = known[0].throughput / known[0].speedup, known[-1].workers
    left.plot([1, most], [one, one * most], **figures.IDEAL | {"label": None})
    right.plot([row.workers for row in known], [row.speedup for row in known], **style)


def _mark(left, right, rows):
    """Cross out points that other programs disturbed: each such repeat on the left, a row with such a repeat on the
    right."""
    rates = [(row.workers, rate) for row in rows for rate in row.disturbed]
    speedups = [(row.workers, row.speedup) for row in rows if row.disturbed and row.speedup]
    for axes, points in (left, rates), (right, speedups):
        if points:
            axes.plot(*zip(*points), **figures.DISTURBED)


def _tick(rows, workers):
    """Return the axis label of a number of workers, with their number of nodes."""
    nodes = sorted({row.nodes for row in rows if row.workers == workers})
    return f"{workers}\n{' or '.join(map(str, nodes))} node{'s' * (nodes != [1])}"


def _sentence(row):
    """Return the content of the figure for `row`, for the alternative text."""
    speedup = f", {row.speedup:.2f} times one worker" if row.speedup else ""
    return f"{row.track}, {row.name}, workers {row.workers}: {row.throughput:.1f} images/s{speedup}."
