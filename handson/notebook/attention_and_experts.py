"""The figures of notebook 09_attention_and_experts: work under a causal mask, ways of attention, and experts."""

import json
from pathlib import Path

import numpy

from handson import figures
from handson.figures import PREDICTED, SERIES, picture

MIB = 2**20
WAYS = {"ring": "ring", "zigzag": "ring", "heads": "heads"}  # way -> the way whose formulas apply


def read(folder):
    """Return the measurements of attention.py from its result folder."""
    return json.loads(Path(folder, "attention.json").read_text())


def load(folder, method):
    """Return the numbers of tokens per expert in a training run of train_experts.py."""
    return json.loads(Path(folder, f"{method}_0", "experts.json").read_text())


def work_of_ranks(chunks, keys_seen, length=2):
    """Return bars of the keys that each rank's queries see. chunks: rank -> numbers of its chunks; length: tokens in a
    chunk."""
    work = {
        f"rank {rank}: chunks {', '.join(map(str, mine))}": keys_seen(
            [place for chunk in mine for place in range(chunk * length, (chunk + 1) * length)]
        )
        for rank, mine in chunks.items()
    }
    return figures.bar_chart(work, "keys seen by the queries of a rank")


def ways(measured, score_bytes, sent_bytes):
    """Return the picture of the time, the memory and the bytes sent of each way, with the student's two formulas."""
    drawing, left, middle, right = figures.axes(11, 3.2, columns=3)
    sizes, ranks = [measured[name] for name in ("tokens", "heads", "width")], measured["ranks"]
    tokens, heads, width = sizes
    milliseconds, sent, memory = {}, {}, {}
    for row in measured["rows"]:
        name = f"{row['way']}, causal" if row["causal"] else row["way"]
        milliseconds[name] = 1000 * row["seconds"]
        if not row["causal"]:
            sent[name], memory[name] = row["sent"] / MIB, row["bytes"] / MIB
    scores = {way: score_bytes(kind, tokens, heads, ranks) / MIB for way, kind in WAYS.items()}
    expected = {way: sent_bytes(kind, tokens, heads * width, ranks) / MIB for way, kind in WAYS.items()}
    figures.bars(left, milliseconds, "time of an attention [ms]")
    figures.bars(middle, memory, "peak memory [MiB]", scores)
    figures.bars(right, sent, "sent by a rank [MiB]", expected)
    middle.plot([], [], color=PREDICTED, linewidth=2.5, label="your formula: only the scores")
    right.plot([], [], color=PREDICTED, linewidth=2.5, label="your formula")
    for axes in middle, right:
        figures.legend_above(axes)
    words = "; ".join(f"{name} {value:.0f} ms" for name, value in milliseconds.items())
    of_memory = ", ".join(f"{name} {memory[name]:.1f} MiB (scores {scores[name]:.1f})" for name in memory)
    of_sent = ", ".join(f"{name} {sent[name]:.2f} MiB (formula {expected[name]:.2f})" for name in sent)
    return picture(drawing, f"Ways of attention on {ranks} ranks: {words}. Memory: {of_memory}. Sent: {of_sent}.")


def computing(measured):
    """Return the picture of each rank's computing time in a causal attention, for stretches and for zigzag."""
    found = {
        row["way"]: [1000 * seconds for seconds in row["computing"]]
        for row in measured["rows"]
        if row["causal"] and row["way"] != "heads"
    }
    drawing, axes = figures.axes(7, 3)
    figures.bars_beside(axes, {"stretches": found["ring"], "zigzag": found["zigzag"]})
    ranks = range(measured["ranks"])
    axes.set(xticks=list(ranks), xticklabels=[f"rank {rank}" for rank in ranks], ylabel="computing [ms]")
    figures.legend_above(axes)
    words = "; ".join(
        f"{way}: " + ", ".join(f"{one:.0f}" for one in values)
        for way, values in zip(("stretches", "zigzag"), found.values())
    )
    return picture(drawing, f"Milliseconds that each rank computes in a causal attention; {words}.")


def experts(folder):
    """Return the picture of the fullest expert's share of the tokens in each step, and of the dropped share, over all
    layers."""
    drawing, left, right = figures.axes(9, 3.2, columns=2)
    words = []
    for style, method in zip(SERIES, ("unbalanced", "balanced")):
        found = load(folder, method)
        counts = numpy.array(found["counts"], dtype=float)  # steps, layers, experts
        fullest = (counts.max(axis=2) / counts.sum(axis=2)).mean(axis=1)
        dropped = numpy.array(found["dropped"]) / counts.sum(axis=(1, 2))
        for axes, values in (left, fullest), (right, dropped):
            axes.plot(range(1, len(values) + 1), values, **style | {"marker": ""}, label=method)
        words.append(f"{method} {fullest[-1]:.0%} and {dropped[-1]:.0%}")
    left.axhline(1 / counts.shape[2], color="0.3", linestyle=":", linewidth=1)
    left.set(xlabel="step", ylabel="share of the tokens", ylim=(0, 1))
    left.set_title("fullest expert; dotted: equal shares", fontsize="medium")
    right.set(xlabel="step", ylabel="share of the tokens", ylim=(0, 1))
    right.set_title("dropped tokens", fontsize="medium")
    left.legend(fontsize="small", edgecolor="none")
    return picture(
        drawing,
        f"The fullest expert's share of the tokens, and the dropped share, in the last step: {'; '.join(words)}.",
    )
