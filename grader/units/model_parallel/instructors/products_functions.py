"""The answers to the notebook's gaps on networks with split matrix multiplications: inputs, right values, and
typical mistakes."""

from grader.instructors.notebook_answers import Choice, Function


def _ring(ranks):
    return 2 * (ranks - 1) / ranks


def _tokens(blocks, images, tokens, width, ranks, all_reduces=4, ring=_ring, number=4):
    return all_reduces * blocks * ring(ranks) * number * images * tokens * width


def _but(**wrong):
    """Return products_bytes with a wrong value of `all_reduces`, `ring` or `number`."""
    return lambda blocks, images, tokens, width, ranks: _tokens(blocks, images, tokens, width, ranks, **wrong)


def _split(chance):
    """Return arguments. The ranks do not divide the numbers that they add up. There are so many numbers that a
    rounded answer passes, but rounded messages do not."""
    images, tokens, width = chance.randint(16, 32), chance.randint(12, 70), 8 * chance.randint(12, 40)
    ranks = chance.choice([ranks for ranks in (3, 5, 6, 7, 9, 11) if images * tokens * width % ranks] or [13])
    return {"blocks": chance.randint(1, 12), "images": images, "tokens": tokens, "width": width, "ranks": ranks}


def _equal(blocks, tokens, width, parameters, part=2, all_reduces=4):
    return 4 * parameters / part / (all_reduces * blocks * 4 * tokens * width)


def _step(chance):
    """Return arguments: in turns, the ranks compute longer than they send, and send longer than they compute. There
    are fewer ranks than bits in a byte."""
    sent, ranks, rate = 1000.0 * chance.randint(200, 9000), chance.randint(2, 7), chance.randint(50, 1000)
    share = chance.turn([chance.uniform(0.3, 0.8), chance.uniform(1.3, 3)])
    return {"computing": share * 8 * ranks * sent / (rate * 1e6), "sent": sent, "ranks": ranks, "rate": rate}


ANSWERS = {
    "products_bytes": Function(
        _split,
        _tokens,
        {
            (
                "your result is half of the bytes: a block has 4 all-reduces (attention and MLP, forward and"
                " backward), and a ring sends 2 (N - 1) / N of each"
            ): _but(all_reduces=2),
            "your result is a quarter of the bytes: a block has 4 all-reduces, and a float32 has 4 bytes": _but(
                all_reduces=1
            ),
            "your result has all-reduces for each of the six matrices, but inside a split part, nothing is sent": _but(
                all_reduces=12
            ),
            "your result is twice the bytes: a float32 has 4 bytes, and a block has 4 all-reduces": _but(number=8),
            "your result is the tensors' size; a ring sends 2 (N - 1) / N of it (with //, this factor is 1)": _but(
                ring=lambda ranks: 1
            ),
            "your result lacks a division by N: in each step of the ring, a rank sends 1/N of the bytes": _but(
                ring=lambda ranks: 2 * (ranks - 1)
            ),
            "your result divides the tokens among the ranks, but all ranks have all tokens": _but(
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
            "your result is for the whole model, but a rank sends only the gradients of its part": (
                lambda parameters, model_ranks, image_ranks: _ring(image_ranks) * 4 * parameters
            ),
            "your result counts numbers: a float32 has 4 bytes": lambda parameters, model_ranks, image_ranks: (
                _ring(image_ranks) * parameters / model_ranks
            ),
            "your result is the size of the gradients; a ring sends 2 (N - 1) / N of it (with //, this factor is 1)": (
                lambda parameters, model_ranks, image_ranks: 4 * parameters / model_ranks
            ),
            "your ring has the ranks that share a model, but it should have the ranks that share the images": (
                lambda parameters, model_ranks, image_ranks: _ring(model_ranks) * 4 * parameters / image_ranks
            ),
            (
                "your ring has all ranks, but it should have only the ranks that share the images"
            ): lambda parameters, model_ranks, image_ranks: (
                _ring(model_ranks * image_ranks) * 4 * parameters / model_ranks
            ),
        },
    ),
    "step_seconds": Function(
        _step,
        lambda computing, sent, ranks, rate: computing + 8 * ranks * sent / (rate * 1e6),
        {
            (
                "your result is for one rank, but all ranks of a node send through the same network"
            ): lambda computing, sent, ranks, rate: computing + 8 * sent / (rate * 1e6),
            ("your result ignores that the rate is in bits: a byte has 8 bits"): lambda computing, sent, ranks, rate: (
                computing + ranks * sent / (rate * 1e6)
            ),
            (
                "your result is only the time of sending: add `computing`, because the ranks compute before they send"
            ): lambda computing, sent, ranks, rate: 8 * ranks * sent / (rate * 1e6),
            "your result is the longer of two times, but the ranks first compute and then send: add both times": (
                lambda computing, sent, ranks, rate: max(computing, 8 * ranks * sent / (rate * 1e6))
            ),
            "your result divides by the number of ranks, but ranks that share a network take longer: multiply": (
                lambda computing, sent, ranks, rate: computing + 8 * sent / ranks / (rate * 1e6)
            ),
            "your result ignores that a Mbit is a million bits": lambda computing, sent, ranks, rate: (
                computing + 8 * ranks * sent / rate
            ),
        },
    ),
    "inside": Choice(
        "model",
        {
            "images": (
                'with `inside` = "images", the ranks that share a model are on different nodes, so the tokens of each'
                " block cross the slow network: more bytes than the gradients"
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
                "your result is twice the number: a rank sends the gradients of its half of the model, and a block has"
                " 4 all-reduces of its tokens"
            ): lambda blocks, tokens, width, parameters: _equal(blocks, tokens, width, parameters, part=1),
            "your result is for one block, but each block has all-reduces of its tokens": (
                lambda blocks, tokens, width, parameters: _equal(1, tokens, width, parameters)
            ),
            (
                "your result is inverted: divide the bytes of the gradients by the bytes of one image"
            ): lambda blocks, tokens, width, parameters: 1 / _equal(blocks, tokens, width, parameters),
        },
    ),
}
