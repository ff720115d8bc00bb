"""Profiles in notebooks: batch jobs record them, the results folders of the exercises keep them, and figures compare
them."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy

from handson import figures
from handson.cluster.follow import follow, submit, wait_until_it_runs
from handson.figures import picture
from handson.language import speak
from handson.notebook import runs
from handson.profiling import analysis, explain, figure, profile_job_resources, rank_clocks, readers
from handson.profiling import watch as watching
from handson.profiling.timeline import COMMUNICATION, COMPUTE, PARTS, RANGE, ProfileError, part_of_step
from handson.pytorch import flops


def start(folder, job_script, **variables):
    """Submit a job that profiles, with these variables in its environment, and return its id. Raises JobFailed.

    If the job script has no requests of its own, qsub gets those of the student's training script.
    """
    return submit(
        folder, *profile_job_resources.of_training(folder, job_script)[1], "-j", "oe", job_script, **variables
    )


def watch(job, interval=2, count=4):
    """Print the utilisation of each device `count` times, every `interval` seconds, once a job runs. Raises JobFailed
    if it does not start in time."""
    wait_until_it_runs(job)
    watching.watch(None, interval, count, print)


def of_job(folder, job):
    """Wait for a job, show its output, and return the Run that it has recorded. Raises JobFailed, ResultError or
    ProfileError."""
    follow(job)
    return readers.load([runs.left_by(folder, job)])[0]


def of_script(folder, script, when, options, keep=False):
    """Profile a script of `folder` with its job script, into results/SCRIPT_WHEN, and return the Run. Raises JobFailed
    or ProfileError.

    keep: if that folder has a recording, do not record again.
    """
    place = Path(folder, "results", f"{script.removesuffix('.py')}_{when}")
    if keep and (place / "result.json").exists():
        speak(f"{place} was recorded before; delete the folder to record it again.")
    else:
        shutil.rmtree(place, ignore_errors=True)
        follow(start(folder, "run_profile.sh", SCRIPT=script, NAME=place.name, OPTIONS=options))
    return readers.load([place])[0]


def of_one_worker(exercises, TRACK="pytorch", OPTIONS=""):
    """Profile one worker now, and return the Run. Raises JobFailed, ResultError or ProfileError."""
    folder, unit, for_one = runs.script_of_one_worker(exercises, TRACK)
    return of_job(folder, start(folder, f"run_{unit}_profile.sh", TRACK=TRACK, OPTIONS=f"{OPTIONS}{for_one}"))


def of_method(folder, script, network, method, options):
    """Run `script` with one method through the job script run_script.sh, record some steps, and return the Run."""
    name = f"{script.removesuffix('.py')}_{method}_profile"
    options = f"--method {method} {options}"
    variables = {"SCRIPT": script, "NAME": name, "PROFILE": "--skip 4 --steps 8", "OPTIONS": options}
    follow(submit(folder, "-j", "oe", "run_script.sh", **variables, HANDSON_NETWORK=network))
    return readers.load([f"{folder}/results/{name}"])[0]


def show(*profiles, steps=3, usage=False):
    """Draw the timelines of runs one above the other, on one scale. usage: also draw the use of their devices during
    the whole run."""
    drawing = figure.timeline([run if usage else replace(run, usage=None) for run in profiles], steps)
    named = zip(figure.names(profiles), profiles)
    return picture(drawing, " ".join(f"{name}: {analysis.verdict(run).sentence}." for name, run in named))


def explained(one, more):
    """Print and draw where the efficiency of the run `more` is lost, from its profile and the profile of `one`, which
    has fewer workers. Raises ProfileError."""
    explanation = explain.split(one, more)
    lines = explain.text(explanation)
    speak(*lines, sep="\n")
    return picture(explain.draw(explanation), f"{' '.join(lines).rstrip('.')}.")


def table(run):
    """Print the share of each part of a step, on each rank."""
    speak(run.name, *analysis.table(analysis.shares(run)), sep="\n")
    if run.result and run.result.disturbance:
        speak(f"These shares are unreliable: {run.result.disturbance}.")


def faster(before, after, predicted):
    """Draw how many times as fast `after` is as `before`, next to the predicted step time."""
    steps = [analysis.common_steps(run)[0] for run in (before, after)]
    seconds = [float((of_run[:, 2] - of_run[:, 1]).mean()) for of_run in steps]
    found = {"a step": seconds[0] / seconds[1], "the whole run": after.result.throughput / before.result.throughput}
    return figures.bar_chart(found, "times as fast as before", predicted=predicted and {"a step": predicted})


def used(run, peak):
    """Return the model FLOPs utilisation of the recorded steps, from 0 to 1: the FLOP/s of one worker divided by
    `peak`. Raises ProfileError."""
    step = max(of_rank.step for of_rank in analysis.shares(run))
    return run.result.batchsize * flops.of_image(run.result.model or "convnet", run.result.size) / (step * peak)


def collectives(run):
    """Print how often ranks communicate in a step, and for how long, on rank 0."""
    for name, seconds, calls in analysis.operators(run.timelines[0], analysis.common_steps(run)[0], (COMMUNICATION,)):
        speak(f"{name:30}  {calls:.3g} {'call' if round(calls, 2) == 1 else 'calls'} a step, {1000 * seconds:.2f} ms")


def waits(run):
    """Return rank -> {another rank: seconds per step for which it waits for that rank}."""
    return {
        shares.rank: {
            other: shares.waits.get(other, 0.0) for other in range(len(run.timelines)) if other != shares.rank
        }
        for shares in analysis.shares(run)
    }


def meetings(run):
    """Return when each rank entered each collective, and when it left: two arrays of seconds, (collectives, ranks)."""
    found = rank_clocks.find(run.timelines)
    first = found.begin.min()
    return (found.begin - first) / 1e9, (found.end - first) / 1e9


def spans(run, rank=0):
    """Return when a rank computes, and when it communicates: two lists of (begin, end) in seconds."""
    timeline = run.timelines[rank]
    first = timeline.begin.min()
    return [list(map(tuple, ((timeline.spans(kind) - first) / 1e9).tolist())) for kind in (COMPUTE, COMMUNICATION)]


def ranges(run, names=PARTS):
    """Return name -> the mean seconds per step that ranges of this name take, on each rank. Raises ProfileError if
    there are no such ranges."""
    found = {name: [spans[name] for spans in map(_ranges, run.timelines)] for name in names}
    if missing := [name for name in names if not all(map(len, found[name]))]:
        raise ProfileError(
            f"{run.name} has no ranges {', '.join(missing)}: mark them in the script, save it, and record it again"
        )
    return {
        name: [float((moments[:, 1] - moments[:, 0]).mean() / 1e9) for moments in of_ranks]
        for name, of_ranks in found.items()
    }


def show_ranges(run, steps=2, names=PARTS):
    """Draw the ranges that a script has marked, on each rank, in a few steps. Raises ProfileError."""
    means, every_rank = ranges(run, names), analysis.common_steps(run)
    middle = max(0, (len(every_rank[0]) - steps) // 2)
    begin = min(of_rank[middle, 1] for of_rank in every_rank)
    end = max(of_rank[middle : middle + steps][-1, 2] for of_rank in every_rank)
    of_ranks = {
        f"rank {one.rank}": {name: _within(moments, begin, end) for name, moments in _ranges(one).items()}
        for one in run.timelines
    }
    words = ", ".join(
        f"{name} {' and '.join(f'{1000 * seconds:.1f}' for seconds in of_ranks)} ms" for name, of_ranks in means.items()
    )
    drawing, axes = figures.axes(9, 0.9 + 0.5 * len(of_ranks))
    figures.spans(axes, of_ranks)
    axes.set(xlabel="time [ms]", xlim=(0, (end - begin) / 1e6))
    return picture(drawing, f"The marked ranges of {steps} steps; mean times on the ranks: {words}.")


def _within(moments, begin, end):
    """Return the moments (ns) between `begin` and `end`: [(begin, length), ...] in ms."""
    inside = moments[(moments[:, 1] > begin) & (moments[:, 0] < end)].clip(begin, end)
    return [((a - begin) / 1e6, (b - a) / 1e6) for a, b in inside.tolist()]


def _ranges(timeline):
    """Return name -> begin and end (ns) of each range with a name of PARTS, in the recorded steps."""
    meant, chosen = numpy.array([part_of_step(name) for name in timeline.names], dtype=object), timeline.kind == RANGE
    moments = numpy.stack([timeline.begin, timeline.end], axis=1)
    return {name: moments[chosen & (meant[timeline.name] == name)] for name in PARTS}
