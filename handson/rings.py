"""A ring all-reduce that is written by hand, for three ranks and three chunks: it draws whose numbers each chunk holds.

`sends` has a list for each step: the chunks that ranks 0, 1 and 2 send to their right neighbours. In the first two
steps, the receiver adds the chunk that arrives to its own (reduce-scatter); in the last two, the chunk that arrives
replaces its own (all-gather). Notebook 05_communication draws it.
"""

import textwrap

from handson import figures
from handson.errors import OneSentence
from handson.notebook import drawings
from handson.words import a_kind

RANKS = 3
STEPS = 2 * (RANKS - 1)
ADDED = RANKS - 1  # the first steps, in which a chunk is added


class RingError(OneSentence, ValueError):
    """The steps of a ring are not lists of chunks."""


def moments(sends):
    """Return whose numbers are in the chunks before the first step and after each step: for each moment, rank and chunk
    a sorted list of ranks. A rank that was added twice is in the list twice."""
    held = [[[rank] for _ in range(RANKS)] for rank in range(RANKS)]
    found = [held]
    for step, chunks in enumerate(sends):
        before, held = held, [list(of_rank) for of_rank in held]
        for rank, chunk in enumerate(chunks):
            right = (rank + 1) % RANKS
            own = before[right][chunk] if step < ADDED else []
            held[right][chunk] = sorted(own + before[rank][chunk])
        found.append(held)
    return found


def problem(sends):
    """Return (the first step that goes wrong, counted from 1, and a sentence that says why), or None. After a step that
    goes wrong, no choice of the later steps leads to the sum on all ranks."""
    for step, (chunks, held) in enumerate(zip(sends, moments(sends))):
        if step == 0 and (unsent := sorted(set(range(RANKS)) - set(chunks))):
            twice = next(chunk for chunk in chunks if chunks.count(chunk) > 1)
            return 1, (
                f"several ranks send chunk {twice}, and no rank sends chunk {unsent[0]}, so no rank can have the sum of"
                f" chunk {unsent[0]} after step {ADDED}"
            )
        for rank, chunk in enumerate(chunks):
            if why := _why_not(step, rank, chunk, held):
                return step + 1, why
    return None


def _why_not(step, rank, chunk, held):
    """Return why it is wrong that a rank sends a chunk in this step, counted from 0, or None. held: before the step."""
    right, message = (rank + 1) % RANKS, held[rank][chunk]
    sends = f"rank {rank} sends chunk {chunk}"
    if step < ADDED and (again := sorted(set(message) & set(held[right][chunk]))):
        return f"{sends}, so rank {right} adds the numbers of rank {again[0]} a second time"
    if step < ADDED and len(message) <= step:
        return f"{sends}, which holds only its own numbers: send the chunk that has just arrived"
    if step < ADDED:
        return None
    if lacks := sorted(set(range(RANKS)) - set(message)):
        return f"{sends} before it is complete: the numbers of rank {lacks[0]} are not in it"
    return f"{sends}, but rank {right} already has the sum of this chunk" if _complete(held[right][chunk]) else None


def _complete(inside):
    return inside == list(range(RANKS))


def picture(sends):
    """Return the picture of a ring: whose numbers each chunk of each rank holds, before the first step and after each
    step up to the first empty list, and the first step that goes wrong. Raises RingError."""
    return figures.picture(*draw(sends))


def draw(sends):
    """Return the figure, and its description."""
    _check(sends)
    written = next((step for step, chunks in enumerate(sends) if not chunks), STEPS)
    sends = sends[:written]
    found, wrong = moments(sends), problem(sends)
    arrived = {
        (step + 1, (rank + 1) % RANKS, chunk) for step, chunks in enumerate(sends) for rank, chunk in enumerate(chunks)
    }
    if wrong:
        words = f"Step {wrong[0]} goes wrong: {wrong[1]}."
    elif written < STEPS:
        words = f"No mistake so far. Step {written + 1} is still to be written."
    else:
        words = "After step 4, all ranks have the sum of all chunks."
    drawing, axes = drawings.contributions(
        found, columns=STEPS + 1, arrived=arrived, wrong=wrong and wrong[0], below=0.9
    )
    colour = figures.VERMILION if wrong else "black"
    axes.text(0.3, 0.75, textwrap.fill(words, 120), va="center", fontsize=10, color=colour)
    return drawing, f"A ring all-reduce of {RANKS} ranks by hand. {words} {_in_words(found[-1])}"


def _in_words(held):
    """Return what all chunks hold, for readers who cannot see the picture."""
    rows = (
        f"rank {rank}: " + ", ".join("+".join(map(str, inside)) for inside in of_rank)
        for rank, of_rank in enumerate(held)
    )
    return f"At the end, the chunks hold the numbers of these ranks: {'; '.join(rows)}."


def _check(sends):
    """Raises RingError unless `sends` has a list for each step, which is empty or has a chunk for each rank."""
    if not isinstance(sends, (list, tuple)) or len(sends) != STEPS:
        has = f"{len(sends)} steps" if isinstance(sends, (list, tuple)) else a_kind(sends)
        raise RingError(f"the ring needs a list of {STEPS} lists, one for each step; this is {has}")
    for step, chunks in enumerate(sends, start=1):
        if not isinstance(chunks, (list, tuple)):
            raise RingError(
                f"step {step} should be a list of {RANKS} chunks, such as [0, 1, 2]; it is {a_kind(chunks)}"
            )
        if chunks and len(chunks) != RANKS:
            raise RingError(f"step {step} has {len(chunks)} chunks, but each of the {RANKS} ranks sends one")
        for rank, chunk in enumerate(chunks):
            if not isinstance(chunk, int) or isinstance(chunk, bool) or not 0 <= chunk < RANKS:
                raise RingError(
                    f"step {step}: rank {rank} sends chunk {chunk!r:.40}, but chunks are numbered from 0 to {RANKS - 1}"
                )
