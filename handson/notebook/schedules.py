"""Figures of notebook 05_communication about when ranks communicate: buckets, blocks of local SGD, and an asynchronous
server."""

import re
from collections import Counter

import numpy
from matplotlib.ticker import LogLocator, NullLocator

from handson.cluster.follow import follow, submit
from handson.notebook.plots import _axes, picture
from handson.profiling import readers

SHADES = (("0.35", None), ("0.85", "///"))  # of bars side by side


def recorded(folder, script, network, method, options):
    """Run `script` with one method by the job script run_script.sh, some steps of it recorded: a Run, as
    handson.notebook.profiled_runs shows it."""
    name = f"{script.removesuffix('.py')}_{method}_profile"
    variables = {
        "SCRIPT": script,
        "NAME": name,
        "PROFILE": "--skip 4 --steps 8",
        "OPTIONS": f"--method {method} {options}",
    }
    follow(submit(folder, "-V", "-l", f"network={network}", "-j", "oe", "run_script.sh", **variables))
    return readers.load([f"{folder}/results/{name}"])[0]


def buckets(runs, reference="torch-ddp"):
    """Throughput against the size of buckets. runs: method -> [Result of each seed]; `reference` is drawn as a dashed
    line."""
    drawing, (axes,) = _axes(6.5, 3.2)
    sizes = [method for method in runs if method != reference]
    rates = {method: [run.throughput for run in of_method] for method, of_method in runs.items()}
    axes.plot(
        sizes,
        [numpy.median(rates[size]) for size in sizes],
        color="black",
        marker="o",
        markerfacecolor="white",
        label="from scratch",
    )
    for place, size in enumerate(sizes):
        axes.plot([place] * len(rates[size]), rates[size], "k_", markersize=9)
    if reference in rates:
        axes.axhline(numpy.median(rates[reference]), color="#0072B2", linestyle="--", label=reference)
    axes.set(
        xlabel="largest size of a bucket", ylabel="throughput [images/s]", ylim=(0, 1.1 * max(map(max, rates.values())))
    )
    axes.legend(fontsize="small", edgecolor="none", loc="lower right")
    return picture(
        drawing,
        "Throughput: "
        + ", ".join(f"{method} {numpy.median(of_method):.0f} images/s" for method, of_method in rates.items())
        + ".",
    )


def periods(runs, formula=None):
    """Accuracy at the end, and bytes sent, against the steps between two averages. runs: "local-sgd-4", ... -> [Result
    of each seed].

    formula: a function of these steps, which gives the bytes that a node should send.
    """
    drawing, (left, right) = _axes(9, 3.2, columns=2)
    words, kinds = [], {}
    for method, of_method in runs.items():
        kind, period = re.fullmatch(r"(.+)-(\d+)", method).groups()
        kinds.setdefault(kind.replace("-", " "), {})[int(period)] = of_method
    for (kind, by_period), marker, line, colour in zip(kinds.items(), "os", ("-", "--"), ("#000000", "#D55E00")):
        steps = sorted(by_period)
        ends = [[run.log[-1]["validation/main/accuracy"] for run in by_period[period]] for period in steps]
        sent = [numpy.median([run.log[-1]["bytes"] / 1e6 for run in by_period[period]]) for period in steps]
        left.plot(
            steps,
            [numpy.mean(of_period) for of_period in ends],
            color=colour,
            marker=marker,
            linestyle=line,
            markerfacecolor="white",
            label=kind,
        )
        for period, of_period in zip(steps, ends):
            left.plot([period] * len(of_period), of_period, color=colour, marker="_", linestyle="none")
        right.plot(steps, sent, color=colour, marker=marker, linestyle=line, markerfacecolor="white", label=kind)
        words += [
            f"{kind} {period}: {numpy.mean(of_period):.3f}, {megabytes:.1f} MB"
            for period, of_period, megabytes in zip(steps, ends, sent)
        ]
    every = sorted({period for by_period in kinds.values() for period in by_period})
    if formula:
        right.plot(
            every, [formula(period) / 1e6 for period in every], color="#0072B2", linewidth=4, alpha=0.4, label="formula"
        )
        right.legend(fontsize="small", edgecolor="none")
    for axes in (left, right):
        axes.set(xscale="log", xlabel="H: steps between two averages")
        axes.set_xticks(every, map(str, every))
        axes.minorticks_off()
    left.set(ylabel="validation accuracy at the end")
    right.set(ylabel="sent by a node in the whole run [MB]", yscale="log")
    right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    right.yaxis.set_major_formatter("{x:g}")
    right.yaxis.set_minor_locator(NullLocator())
    left.legend(fontsize="small", edgecolor="none")
    return picture(
        drawing, "Accuracy and megabytes sent against the steps between two averages: " + "; ".join(words) + "."
    )


def counted(runs):
    """How often each staleness occurred in some runs of train_parameter_server.py: {staleness: gradients}."""
    found = Counter()
    for row in (row for run in runs for row in run.log):
        found.update({int(name.split()[1]): int(times) for name, times in row.items() if name.startswith("staleness ")})
    return dict(sorted(found.items()))


def staleness(runs):
    """Histograms of the staleness of gradients, side by side. runs: method -> [Result of each seed]; two methods at
    most."""
    drawing, (axes,) = _axes(7, 3)
    words = []
    for number, ((method, of_method), (shade, hatch)) in enumerate(zip(runs.items(), SHADES)):
        times = counted(of_method)
        shares = [100 * count / sum(times.values()) for count in times.values()]
        axes.bar(
            [one + 0.4 * number - 0.2 for one in times],
            shares,
            width=0.4,
            facecolor=shade,
            edgecolor="0.25",
            hatch=hatch,
            label=method,
        )
        mean = sum(one * count for one, count in times.items()) / sum(times.values())
        words.append(f"{method}: mean {mean:.2f}, largest {max(times)}")
    axes.set(xlabel="staleness [steps of the server]", ylabel="gradients [%]")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(fontsize="small", edgecolor="none")
    return picture(drawing, f"Staleness of gradients. {'; '.join(words)}.")
