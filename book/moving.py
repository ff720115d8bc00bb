"""The data of the book's two figures that move: each step of a ring all-reduce, and the schedules of pipelines. The
script static/moving.js draws them, and computes none of them."""

import json
import runpy

from grader.exercises import ROOT
from handson.language import marked
from handson.pipelines import simulate

RANKS = range(2, 7)
STAGES, MICRO_BATCHES = range(2, 7), range(1, 13)
WORDS = {
    "ranks": "ranks",
    "step": "step",
    "previous": "Previous step",
    "next": "Next step",
    "rank": "rank",
    "before": 'Before the first step: each rank has only its own numbers. Press the button "Next step".',
    "reduce_scatter": "Step {step} of {steps}, reduce-scatter: each rank sends one part to its right neighbour, which"
    " adds it to its own.",
    "all_gather": "Step {step} of {steps}, all-gather: each rank sends a finished part to its right neighbour, which"
    " keeps it.",
    "sent": "Each rank has sent {sent}/{ranks} of the tensor.",
    "finished": "All ranks have the whole sum. Each rank has sent {sent}/{ranks} of the tensor: 2 (N - 1) / N.",
    "ring_alt": "Which ranks' numbers are in each part of each rank",
    "schedule": marked("schedule"),
    "one_by_one": "one micro-batch after the other",
    "gpipe": "GPipe",
    "one_forward_one_backward": "1F1B",
    "stages": marked("stages"),
    "micro_batches": marked("micro-batches"),
    "stage": "stage",
    "time": "time, in forwards of a stage",
    "forward": marked("forward"),
    "backward": marked("backward"),
    "bubble": "{bubble} % of the time idle (the bubble); the batch takes {end} forwards.",
    "memory": "Micro-batches whose activations are held, at most:",
    "holds": "holds {held}",
    "pipeline_alt": "Timeline of the pipeline",
}


def script(phrase=lambda text: text):
    """Return the JavaScript with the data and the words of the figures; `phrase` translates a word."""
    data = {
        "words": {name: phrase(text) for name, text in WORDS.items()},
        "ring": {ranks: ring(ranks) for ranks in RANKS},
        "pipelines": pipelines(),
    }
    return f"window.MOVING = {json.dumps(data, ensure_ascii=False, separators=(',', ':'))};\n"


def ring(ranks):
    """Return the moments of a ring all-reduce, from before its first step: {"parts": for each rank and each part the
    ranks whose numbers are in it, "sent": the part that each rank sent just now, or None}."""
    parts = [[[rank] for _ in range(ranks)] for rank in range(ranks)]
    moments = [{"parts": parts, "sent": None}]
    for step in range(2 * (ranks - 1)):
        gathers = step >= ranks - 1
        sent = [(rank - step) % ranks for rank in range(ranks)]
        after = [[list(part) for part in of_rank] for of_rank in parts]
        for rank, part in enumerate(sent):
            to = (rank + 1) % ranks
            after[to][part] = sorted({*parts[rank][part]} if gathers else {*parts[rank][part], *parts[to][part]})
        parts = after
        moments.append({"parts": parts, "sent": sent})
    return moments


def pipelines():
    """Return {schedule: {stages: {micro-batches: the timeline}}}; a timeline has for each stage [operation, begin,
    end], ..., the end, the bubble in percent, and what each stage holds at most."""
    return {
        name: {stages: {count: _timeline(order, stages, count) for count in MICRO_BATCHES} for stages in STAGES}
        for name, order in orders().items()
    }


def orders():
    """Return {schedule: the function of a stage, the stages and the micro-batches that returns the stage's
    operations}."""
    taught = runpy.run_path(str(ROOT / "solutions/06_model_parallel/pytorch/schedules.py"))
    return {"one_by_one": one_by_one} | {name: taught[name] for name in ("gpipe", "one_forward_one_backward")}


def one_by_one(stage, stages, micro_batches):
    """Each micro-batch goes forward and back before the next one begins."""
    return [f"{letter}{number}" for number in range(micro_batches) for letter in "FB"]


def _timeline(order, stages, micro_batches):
    timeline = simulate([order(stage, stages, micro_batches) for stage in range(stages)])
    rows = [[] for _ in range(stages)]
    for stage, name, begin, end in timeline.operations:
        rows[stage].append([name, int(begin), int(end)])
    return {"rows": rows, "end": int(timeline.end), "bubble": round(100 * timeline.bubble), "held": timeline.held}
