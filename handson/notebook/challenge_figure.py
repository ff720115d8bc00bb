"""The figure of notebook 10_challenge: training runs next to each other, with the limits of the challenge."""

from handson import challenge_limits as challenge
from handson import figures


def picture(results, predicted=None):
    """Return the picture of the seconds, the bytes between the nodes and the memory of training runs.

    results: name -> Result; predicted: name -> seconds, or None.
    """
    seconds = {name: result.seconds for name, result in results.items()}
    sent = {name: result.log[-1]["bytes"] / 1e6 for name, result in results.items()}
    memory = {
        name: max(sum(account["peak"].values()) for account in result.memory) / 2**20
        for name, result in results.items()
    }
    drawing, left, middle, right = figures.axes(10, 2.2, columns=3)
    figures.bars(left, seconds, "training [s]", predicted)
    figures.bars(middle, sent, "sent by node 1 [MB]")
    figures.bars(right, memory, "memory of the fullest GPU [MiB]")
    if predicted:
        left.plot([], [], color=figures.PREDICTED, linewidth=2.5, label="your prediction")
        figures.legend_above(left)
    limit = challenge.MEMORY / 2**20
    right.axvline(limit, color="black", linestyle="--", linewidth=1.5, label="limit")
    right.set_xlim(0, 1.1 * max(limit, *memory.values()))
    figures.legend_above(right)
    for axes in middle, right:
        axes.set_yticklabels([])
    words = (
        f"{name} {seconds[name]:.1f} s, {sent[name]:.1f} MB sent, {memory[name]:.1f} MiB of memory" for name in results
    )
    return figures.picture(drawing, f"Training runs of the challenge: {'; '.join(words)}.")
