"""``python -m handson timeline FILES...``: print a table of shares, the longest operators and a verdict for each run,
and draw the figure."""

from handson import compare, figures
from handson.language import marked, speak
from handson.profiling import analysis, readers
from handson.profiling.timeline import COMMUNICATION, COMPUTE, COPY, STEP
from handson.words import counted

LONGEST = 4  # number of operators to list
NAME = 60  # characters of an operator's name to show


def report(paths, figure_path=None, export=None, steps=3, say=speak):
    """Read the runs in `paths`, `say` the report, and draw `steps` steps. The figure goes into the folder of the last
    run, if `figure_path` is None. Raises ProfileError, ResultError or FigureError."""
    from handson.profiling.figure import figure
    from handson.profiling.perfetto import write

    runs = readers.load(paths)
    for run in runs:
        for line in text(run):
            say(line)
        say("")
    for line in compare.disturbed([run.result for run in runs if run.result]):
        say(line)
    if export:
        write(runs, export)
        say(f"Chrome trace, for ui.perfetto.dev: {export}")
    path = figures.place(figure_path, paths[-1], "timeline.png")
    say(figures.told(figure(runs, path, steps)))


def text(run):
    """Return the report on a run as lines."""
    of_ranks = analysis.shares(run)
    timelines = run.timelines
    lines = [
        f"{run.name}: {counted(len(timelines), 'rank')}, {sum(map(len, timelines)):,} events, by {timelines[0].tool}"
    ]
    if timelines[0].size and timelines[0].size > len(timelines):
        lines.append(
            f"These are the profiles of {len(timelines)} of {timelines[0].size} ranks: the other ranks may be waiting"
            " for the missing ones."
        )
    if not timelines[0].count(STEP):
        lines.append("No iterations are marked in it: the whole recording counts as one step.")
    if untimed := sum(timeline.untimed for timeline in timelines):
        lines.append(
            f"{untimed:,} event{'s' * (untimed > 1)} of the GPU {'have' if untimed > 1 else 'has'} no time, which the"
            " recorder could not take: left out."
        )
    lines += analysis.table(of_ranks)
    for rank, offset in run.offsets.items():
        if abs(offset) > 1e6:
            lines.append(
                f"The clock of rank {rank} was corrected by {offset / 1e6:+.3f} ms, so that collectives fit together."
            )
    first, steps = timelines[0], analysis.common_steps(run)[0]
    for words, kinds in (
        (f"Longest computation, of rank {first.rank}:", (COMPUTE,)),
        (f"Longest copies, of rank {first.rank}:", (COPY,)),
        (f"Longest collectives, with waiting, of rank {first.rank}:", (COMMUNICATION,)),
    ):
        longest = analysis.operators(first, steps, kinds)[:LONGEST]
        lines += [words] * bool(longest)
        lines += [
            f"  {_short(name):{NAME}}  " + f"{1000 * seconds:8.3f} ms a step, {calls:.4g} calls"
            for name, seconds, calls in longest
        ]
    finding = analysis.verdict(run, of_ranks)
    lines.append(marked(f"Verdict: {finding.sentence}."))
    return lines


def _short(name):
    return name if len(name) <= NAME else f"{name[: NAME - 3]}..."
