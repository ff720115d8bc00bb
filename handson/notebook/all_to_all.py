"""The puzzle of notebook 09_attention_and_experts: an all-to-all by hand. The student writes how many tokens each rank
sends to each rank and receives from each rank; the picture shows the way of each token."""

from handson import figures

COLOURS = (figures.PALE_BLUE, figures.YELLOW, figures.PALE_ORANGE)  # one colour for each expert of a rank


def by_hand(experts, sends, receives, each=2):
    """Return the picture of an all-to-all, with the first wrong entry in its title.

    experts: for each rank, the expert of each of its tokens; sends[a][b]: tokens that rank a sends to rank b;
    receives[a][b]: tokens that rank a receives from rank b; each: experts per rank.
    """
    before = [sorted(of_rank) for of_rank in experts]
    title = problem(experts, sends, receives, each) or "correct: each token arrives at the rank of its expert"
    ways = arriving(before, sends)
    slot = max(map(len, before + ways)) + 1
    drawing, axes = figures.axes(9, 3, grid=False)
    for rank, (tokens, sources) in enumerate(zip(before, ways)):
        for height, words in (1.3, "before"), (-0.3, "after"):
            axes.text(slot * rank + slot / 2 - 1, height, f"rank {rank}, {words}", ha="center", va="center")
        for number, expert in enumerate(tokens):
            _token(axes, slot * rank + number, 1, expert, each, rank)
        for number, (source, place) in enumerate(sources):
            _token(axes, slot * rank + number, 0, before[source][place], each, rank, "after")
            axes.plot([slot * source + place, slot * rank + number], [1, 0], color="0.6", linewidth=1, zorder=1)
    axes.set(xlim=(-1, slot * len(before) - 1), ylim=(-0.5, 1.5))
    axes.axis("off")
    axes.set_title(title, loc="left", fontsize="medium")
    return figures.picture(drawing, f"All-to-all of {len(before)} ranks; {title.rstrip('?')}.")


def problem(experts, sends, receives, each=2):
    """Return the first wrong entry of `sends` or `receives`, as a sentence; or None."""
    ranks = range(len(experts))
    for name, table in ("sends", sends), ("receives", receives):
        for one in ranks:
            if not _is_row(table, one, len(ranks)):
                return f"{name}[{one}] must be a list of {len(ranks)} whole numbers, one for each rank"
            for other in ranks:
                source, target = (one, other) if name == "sends" else (other, one)
                if table[one][other] != sum(expert // each == target for expert in experts[source]):
                    question = f"how many tokens of rank {source} have an expert on rank {target}?"
                    return f"{name}[{one}][{other}] = {table[one][other]} is wrong: {question}"
    return None


def arriving(before, sends):
    """Return, for each rank, the tokens that arrive there, as (source rank, index there). Like all_to_all_single, each
    rank sends its first tokens to rank 0, the next ones to rank 1, and so on."""
    found = [[] for _ in before]
    for source, tokens in enumerate(before):
        row = sends[source] if _is_row(sends, source, len(before)) else ()
        targets = [target for target, count in enumerate(row) for _ in range(min(count, len(tokens)))]
        for place, target in zip(range(len(tokens)), targets):
            found[target].append((source, place))
    return found


def _is_row(table, rank, ranks):
    row = table[rank] if isinstance(table, list) and len(table) == ranks else ()
    return isinstance(row, list) and len(row) == ranks and all(type(one) is int and one >= 0 for one in row)


def _token(axes, x, y, expert, each, rank, when="before"):
    """Draw a token with the number of its expert, in the colour of the expert's rank; on a wrong rank, framed."""
    wrong = when == "after" and expert // each != rank
    frame = dict(edgecolor=figures.VERMILION, linewidth=2.5) if wrong else dict(edgecolor="0.25", linewidth=0.8)
    box = dict(boxstyle="square,pad=0.35", facecolor=COLOURS[expert // each % len(COLOURS)], **frame)
    axes.text(x, y, expert, ha="center", va="center", bbox=box, zorder=2)
