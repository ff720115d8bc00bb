"""The answers to the notebook's gaps on networks split in their products: inputs, what is right, and typical
mistakes."""

from grader.instructors.notebook_answers import Choice, Function


def _ring(ranks):
    return 2 * (ranks - 1) / ranks


def _tokens(blocks, images, tokens, width, ranks, all_reduces=4, ring=_ring, number=4):
    return all_reduces * blocks * ring(ranks) * number * images * tokens * width


def _but(**wrong):
    """products_bytes with another value of `all_reduces`, `ring` or `number`."""
    return lambda blocks, images, tokens, width, ranks: _tokens(blocks, images, tokens, width, ranks, **wrong)


def _split(chance):
    """The ranks do not divide the numbers that they add up, which are so many that a rounded answer passes, and rounded
    messages do not."""
    images, tokens, width = chance.randint(16, 32), chance.randint(12, 70), 8 * chance.randint(12, 40)
    ranks = chance.choice([ranks for ranks in (3, 5, 6, 7, 9, 11) if images * tokens * width % ranks] or [13])
    return {"blocks": chance.randint(1, 12), "images": images, "tokens": tokens, "width": width, "ranks": ranks}


def _equal(blocks, tokens, width, parameters, part=2, all_reduces=4):
    return 4 * parameters / part / (all_reduces * blocks * 4 * tokens * width)


def _step(chance):
    """In turns, the ranks compute longer than they send, and send longer than they compute. Fewer ranks than bits of a
    byte."""
    sent, ranks, rate = 1000.0 * chance.randint(200, 9000), chance.randint(2, 7), chance.randint(50, 1000)
    share = chance.turn([chance.uniform(0.3, 0.8), chance.uniform(1.3, 3)])
    return {"computing": share * 8 * ranks * sent / (rate * 1e6), "sent": sent, "ranks": ranks, "rate": rate}


ANSWERS = {
    "products_bytes": Function(
        _split,
        _tokens,
        {
            (
                "that is half of it: a block has 4 all-reduces (attention and MLP, forward and backward), and a ring"
                " sends 2 (N - 1) / N of each"
            ): _but(all_reduces=2),
            "that is a quarter of it: a block has 4 all-reduces, and a float32 has 4 bytes": _but(all_reduces=1),
            "that is one for each of the six matrices; between two products nothing is sent": _but(all_reduces=12),
            "that is twice of it: a float32 has 4 bytes, and a block has 4 all-reduces": _but(number=8),
            "that is what is added up; a ring sends 2 (N - 1) / N of it, a factor that // makes 1": _but(
                ring=lambda ranks: 1
            ),
            "a ring sends 2 (N - 1) / N of the bytes: in each step 1/N": _but(ring=lambda ranks: 2 * (ranks - 1)),
            "the tokens do not become fewer on each rank: all ranks have all of them": _but(
                ring=lambda ranks: _ring(ranks) / ranks
            ),
        },
    ),
    "images_bytes": Function(
        lambda chance: {
            "parameters": 3000 * chance.randint(400, 3333),
            "model_ranks": chance.randint(2, 5),
            "image_ranks": chance.randint(6, 9),
        },
        lambda parameters, model_ranks, image_ranks: _ring(image_ranks) * 4 * parameters / model_ranks,
        {
            "a rank has a part of the model, and sends the gradients of this part only": (
                lambda parameters, model_ranks, image_ranks: _ring(image_ranks) * 4 * parameters
            ),
            "a float32 has 4 bytes": lambda parameters, model_ranks, image_ranks: (
                _ring(image_ranks) * parameters / model_ranks
            ),
            "that is what is added up; a ring sends 2 (N - 1) / N of it, a factor that // makes 1": (
                lambda parameters, model_ranks, image_ranks: 4 * parameters / model_ranks
            ),
            "the ring has the ranks that share the images; the other number says how the model is divided": (
                lambda parameters, model_ranks, image_ranks: _ring(model_ranks) * 4 * parameters / image_ranks
            ),
            (
                "the ring has the ranks that share the images, not all ranks"
            ): lambda parameters, model_ranks, image_ranks: (
                _ring(model_ranks * image_ranks) * 4 * parameters / model_ranks
            ),
        },
    ),
    "step_seconds": Function(
        _step,
        lambda computing, sent, ranks, rate: computing + 8 * ranks * sent / (rate * 1e6),
        {
            "all ranks of a node send over its one network": lambda computing, sent, ranks, rate: (
                computing + 8 * sent / (rate * 1e6)
            ),
            "the rate is in bits: a byte has 8 of them": lambda computing, sent, ranks, rate: (
                computing + ranks * sent / (rate * 1e6)
            ),
            (
                "the ranks compute before they send: add `computing`, which the rate does not divide, to the seconds"
                " of sending"
            ): lambda computing, sent, ranks, rate: 8 * ranks * sent / (rate * 1e6),
            "first all compute, then all send: add both, in place of the longer one": (
                lambda computing, sent, ranks, rate: max(computing, 8 * ranks * sent / (rate * 1e6))
            ),
            "the network is shared by the ranks, so it takes longer, not shorter": (
                lambda computing, sent, ranks, rate: computing + 8 * sent / ranks / (rate * 1e6)
            ),
            "a Mbit is a million bits": lambda computing, sent, ranks, rate: computing + 8 * ranks * sent / rate,
        },
    ),
    "inside": Choice(
        "model",
        {
            "images": (
                "then the ranks that share a model are on different nodes, and the tokens of each block go through the"
                " slow network: more bytes than the gradients"
            )
        },
        '{!r} is neither "model" nor "images"',
    ),
    "images_of_equal_bytes": Function(
        lambda chance: {
            "blocks": chance.randint(1, 12),
            "tokens": chance.randint(3, 70),
            "width": 8 * chance.randint(2, 40),
            "parameters": 1000 * chance.randint(10, 9999),
        },
        _equal,
        {
            (
                "that is twice of it: a rank sends the gradients of its half of the model, and a block has 4"
                " all-reduces of its tokens"
            ): lambda blocks, tokens, width, parameters: _equal(blocks, tokens, width, parameters, part=1),
            "that is for one block: each block has all-reduces of its tokens": (
                lambda blocks, tokens, width, parameters: _equal(1, tokens, width, parameters)
            ),
            (
                "that is the other way round: divide the gradients' bytes by those of one image"
            ): lambda blocks, tokens, width, parameters: 1 / _equal(blocks, tokens, width, parameters),
        },
    ),
}
