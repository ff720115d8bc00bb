"""``python -m handson predict RUNS... --workers 1,2,4,...,512 --network 25gbit``: predict many workers from measured
runs of a few.

The output is a table with an uncertainty band, sentences on the bottleneck, and a figure. The model is in
handson.scaling.model.
"""

import numpy

from handson import figures
from handson.language import marked, speak, translated
from handson.scaling import batch_size, measured_runs, message_times
from handson.scaling.model import BAND, Plan, fit, predict
from handson.words import counted, rjust, width

MOST = 4096  # workers
SURE = 100  # a fitted critical batch this many times as large as the largest batch of the runs is not reported
HEADINGS = marked(
    (
        "workers",
        "nodes",
        "ms a step",
        "images/s",
        "95 % band",
        "speed-up",
        "efficiency",
        "compute",
        "waiting",
        "overhead",
        "communication",
        "evaluation",
    )
)
TO = marked("to")
# part -> its name in figures
PARTS = {
    "compute": "compute",
    "waiting": "waiting",
    "overhead": "overhead",
    "communication": "communication",
    "evaluation": "evaluate",
}


class PredictError(measured_runs.RunsError):
    """An option is impossible."""


def command(
    paths,
    workers,
    rate,
    latency,
    per_node,
    algorithm,
    dtype,
    double_buffering,
    batchsize,
    parameters,
    accuracy,
    efficiency,
    start_up,
    figure,
    say=speak,
):
    """Read the runs, `say` the table and its consequences, and draw the figure. Raises OneSentence errors."""
    workers = numbers(workers)
    found, networks, remarks = measured_runs.read(paths)
    single, several = measured_runs.check(found)
    own = max(several, key=lambda run: run.workers)
    plan = Plan(
        message_times.rate(rate) if rate else message_times.rate(own.network) if own.network else None,
        per_node or own.per_node,
        algorithm,
        dtype or own.dtype,
        double_buffering or own.double_buffering,
        batchsize,
        None if latency is None else latency / 1e6,
    )
    for number in workers:
        message_times.nodes(number, plan.per_node)
    model = fit(found, networks, parameters)
    predictions = [predict(model, number, plan) for number in workers]
    one = predict(model, 1, plan)
    lines = [
        *remarks,
        *[""] * bool(remarks),
        *described(model, plan, rate or own.network),
        "",
        *table(predictions, one),
        "",
        *limits(model, plan, predictions, one, efficiency),
    ]
    if accuracy:
        lines += to_accuracy([run.result for run in found if run.result], accuracy, predictions, start_up)
    for line in lines:
        say(line)
    drawing, words = draw(predictions, one, found, efficiency)
    path = figures.place(figure, own.name, "prediction.png")
    say(figures.told(figures.save(drawing, path, words)))


def numbers(text):
    """Return [1, 2, 4] for "1,2,4"; "..." between two numbers continues by doubling, or halving: "1,...,512". Raises
    PredictError."""
    found, going_on = [], False
    for word in text.replace(" ", "").split(","):
        if word == "...":
            going_on = bool(found)
            continue
        if not word.isdigit() or not 1 <= int(word) <= MOST:
            raise PredictError(
                f"--workers {text} has {word!r}: give whole numbers from 1 to {MOST:,}, such as 1,2,4,...,512"
            )
        last, number = found[-1] if going_on else int(word), int(word)
        while 2 * last < number:
            found.append(last := 2 * last)
        while last > 2 * number:
            found.append(last := last // 2)
        found.append(number)
        going_on = False
    return sorted(set(found))


def described(model, plan, rate):
    """Return the conditions of a prediction, and the fitted parameters with their uncertainty, as lines."""
    size = model.parameters * message_times.DTYPES[plan.dtype]
    lines = [
        f"Predicted: {plan.algorithm} all-reduce of {size / 1e6:.3g} MB ({plan.dtype}), network"
        f" {rate or 'not limited'}, {counted(plan.per_node, 'worker')} a node, batch"
        f" {plan.batchsize or model.batchsize} per worker" + ", double buffering" * plan.double_buffering
    ]
    if plan.batchsize and plan.batchsize != model.batchsize and model.fixed == 0:
        lines.append(
            f"  All runs use batches of {model.batchsize}, so the computing time is assumed to be proportional to the"
            " batch size. A run of one worker with another -b would measure this."
        )
    lines.append("Fitted to the runs:")
    for name, (median, low, high) in model.intervals().items():
        factor, unit = (1000, " ms") if not name.startswith("share") else (1, "")
        lines.append(f"  {translated(name)}: {factor * median:.4g}{unit} ({_band(factor * low, factor * high, '.4g')})")
    if not model.told_apart:
        lines.append(
            "  Runs with only one number of workers above 1 cannot distinguish overhead from latency, which widens"
            " the band: add a run with more workers, or the .json that jobs/pbs/run_network.sh writes for more than"
            " two ranks."
        )
    if not model.crossed:
        lines.append(
            "  All these runs were on one node, so the measured latency is that between processes of one node, not that"
            " of a network: add a run on two nodes, or give --latency."
        )
    return lines


def table(predictions, one):
    """Return the predictions as lines of aligned text; parts of the step are shares of its time with evaluation."""
    rows = [tuple(map(translated, HEADINGS))]
    for found in predictions:
        rate, low, high = middle(found.throughput)
        speedup = float(numpy.median(found.throughput / one.throughput))
        whole = found.step + found.evaluation
        shares = [f"{100 * numpy.median(getattr(found, part) / whole):.0f} %" for part in PARTS]
        rows.append(
            (
                str(found.workers),
                str(found.nodes),
                f"{1000 * numpy.median(found.step):.2f}",
                f"{rate:.1f}",
                _band(low, high, ".1f"),
                f"{speedup:.2f}",
                f"{speedup / found.workers:.3f}",
                *shares,
            )
        )
    widths = [max(map(width, column)) for column in zip(*rows)]
    return ["  ".join(map(rjust, row, widths)) for row in rows]


def _band(low, high, digits):
    return f"{low:{digits}} {translated(TO)} {high:{digits}}"


def middle(values):
    """Return (median, low, high) of drawn values."""
    return float(numpy.median(values)), *map(float, numpy.quantile(values, BAND))


def limits(model, plan, predictions, one, efficiency):
    """Return sentences on the number of workers at which the network becomes the bottleneck, and on the largest number
    with the wanted efficiency."""
    doubled = [number * plan.per_node for number in _doubling(MOST // plan.per_node)]
    ladder = [predict(model, number, plan) for number in ([1] if plan.per_node > 1 else []) + doubled]
    single = one.throughput
    lines = []
    limited = _limited(ladder)
    if not limited:
        lines.append(f"Up to {MOST:,} workers, communication takes less time than computation.")
    elif model.crossed or plan.latency is not None:
        lines.append(
            f"The network is the bottleneck from about {limited.workers} workers on: communication then takes longer"
            " than computation."
        )
    else:
        lines.append(
            f"Communication takes longer than computation from about {limited.workers} workers on, if each message"
            " costs what it cost on one node: these runs do not show the network."
        )
    reached = [
        found.workers for found in ladder if numpy.median(found.throughput / single) / found.workers >= efficiency
    ]
    sure = [
        found.workers
        for found in ladder
        if numpy.quantile(found.throughput / single, BAND[0]) / found.workers >= efficiency
    ]
    lines.append(
        f"The efficiency is at least {efficiency:g} for up to {counted(max(reached, default=1), 'worker')}; at the"
        f" lower end of the band, for up to {counted(max(sure, default=1), 'worker')}. (Only powers of two were tried.)"
    )
    ends = {found.workers: found for found in (predictions[0], predictions[-1])}.values()
    costs = [
        marked(
            f"{1e6 / 3600 * found.nodes / numpy.median(found.throughput):.3g} with {counted(found.workers, 'worker')}"
        )
        for found in ends
    ]
    lines.append(f"Node-hours for a million images: {', '.join(costs)}.")
    return lines


def _limited(predictions):
    """Return the first of these predictions in which communication takes longer than computation, or None."""
    return next(
        (found for found in predictions if numpy.median(found.communication) > numpy.median(found.compute)), None
    )


def _doubling(most):
    number = 1
    while number <= most:
        yield number
        number *= 2


def to_accuracy(results, accuracy, predictions, start_up=0.0):
    """Return the seconds and node-hours to an accuracy, as lines. The number of images grows with the total batch.
    start_up: seconds before the first step.

    Raises RunsError if the runs have not reached the accuracy with two sizes of the total batch.
    """
    needed = {}
    for run in results:
        epochs = next((row["epoch"] for row in run.log if (row.get("validation/main/accuracy") or 0) >= accuracy), None)
        if epochs:
            needed.setdefault(run.batchsize * run.workers, []).append(epochs * run.images / run.epochs)
    if len(needed) < 2:
        reached = f"with a total batch of {', '.join(map(str, needed))} only" if needed else "in none of the runs"
        raise measured_runs.RunsError(
            f"an accuracy of {accuracy:g} was reached {reached}, but the cost of a bigger batch can only be estimated"
            " from runs with two total batch sizes: train with another -b, or for more epochs (-e)"
        )
    least, critical = batch_size.critical_batch(list(needed), [float(numpy.mean(images)) for images in needed.values()])
    words = (
        f"the critical batch is {critical:,.0f} images"
        if critical < SURE * max(needed)
        else "bigger batches needed no more images in these runs"
    )
    lines = [
        f"To an accuracy of {accuracy:g}: {words} (fitted to {len(needed)} sizes of the total batch).",
        f"{'workers':>9}  {'total batch':>11}  {'images':>10}  {'seconds':>9}  {'95 % band':>20}  {'node-hours':>10}",
    ]
    for found in predictions:
        images = batch_size.images_to_accuracy(least, critical, found.batch)
        seconds, low, high = middle(start_up + images / found.throughput)
        lines.append(
            f"{found.workers:>9}  {found.batch:>11}  {images:>10.0f}  {seconds:>9.4g}  {f'{low:.4g} to {high:.4g}':>20}"
            f"  {seconds * found.nodes / 3600:>10.3g}"
        )
    epoch = results[0].images // results[0].epochs
    if larger := [found.workers for found in predictions if found.batch > epoch]:
        lines.append(
            f"From {counted(larger[0], 'worker')} on, a single step would use more images than the data set has"
            f" ({epoch:,}), so these rows are not realistic."
        )
    return lines


def draw(predictions, one, measured=(), efficiency=0.8, expected=None):
    """Return a matplotlib Figure and its description: throughput with its band, the ideal line, the line of an
    efficiency, measured runs, and expected values (workers -> images/s); the parts of a step as areas, and the number
    of workers from which communication takes longer than computation."""
    workers = [found.workers for found in predictions]
    drawing, left, right = figures.axes(10, 4.6, columns=2)
    rates = [middle(found.throughput) for found in predictions]
    single = float(numpy.median(one.throughput))
    left.fill_between(
        workers,
        [low for _, low, _ in rates],
        [high for _, _, high in rates],
        color=figures.PREDICTED,
        alpha=0.25,
        linewidth=0,
        label="95 % band",
    )
    left.plot(
        workers, [rate for rate, _, _ in rates], color=figures.PREDICTED, marker="^", markersize=4, label="predicted"
    )
    left.plot(workers, [single * number for number in workers], **figures.IDEAL)
    left.plot(
        workers,
        [efficiency * single * number for number in workers],
        color="0.3",
        linestyle=":",
        linewidth=1.5,
        label=f"efficiency {efficiency:g}",
    )
    nodes = {found.workers: found.nodes for found in predictions}
    for colour, label, alike in (("black", "measured", True), ("0.6", "measured, on other nodes", False)):
        points = [
            (run.workers, run.result.throughput)
            for run in measured
            if run.result and (nodes.get(run.workers, run.result.nodes) == run.result.nodes) == alike
        ]
        if points:
            left.plot(*zip(*points), color=colour, marker="o", linestyle="", markerfacecolor="none", label=label)
    if expected:
        left.plot(
            list(expected),
            list(expected.values()),
            color="black",
            marker="*",
            linestyle="",
            markersize=10,
            label="your prediction",
        )
    below = numpy.zeros(len(workers))
    for part, name in PARTS.items():
        seconds = 1000 * numpy.array([numpy.median(getattr(found, part)) for found in predictions])
        right.fill_between(workers, below, below + numpy.maximum(seconds, 0), label=part, **figures.part(name))
        below = below + numpy.maximum(seconds, 0)
    limited = _limited(predictions)
    if limited:
        right.axvline(
            limited.workers, color="black", linestyle="-.", linewidth=1.2, label="more communication than compute"
        )
    left.set(xscale="log", yscale="log", ylabel="throughput [images/s]")
    right.set(xscale="log", ylim=(0, None), ylabel="time of a step [ms]")
    for axes in (left, right):
        axes.set_xticks(workers, [str(number) for number in workers], rotation=45 if len(workers) > 8 else 0)
        axes.minorticks_off()
        axes.set(xlabel="workers")
        axes.legend(loc="upper left", fontsize="small", edgecolor="none", framealpha=1)
    figures.numbers_of_log_axis(left)
    words = [
        f"{number} workers: {rate:.1f} images/s, between {low:.1f} and {high:.1f}."
        for number, (rate, low, high) in zip(workers, rates)
    ]
    words += [f"Communication takes longer than computation from {limited.workers} workers on."] if limited else []
    return drawing, "Predicted throughput, and the parts of a step, against workers. " + " ".join(words)


def picture(predictions, one, measured=(), efficiency=0.8, expected=None):
    """Return the same figure for a notebook."""
    return figures.picture(*draw(predictions, one, measured, efficiency, expected))
