"""Inputs, right values and typical mistakes of the notebook's gaps on memory."""

from grader.instructors.notebook_answers import Function


def _activation_bytes(batch, tokens, width, blocks, each=16, bytes_of_one=4):
    return each * bytes_of_one * batch * tokens * width * blocks


def _checkpointed(batch, tokens, width, blocks, again=15, bytes_of_one=4):
    return bytes_of_one * batch * tokens * width * (blocks + again)


def _shape(chance):
    return {
        "batch": chance.randint(1, 64),
        "tokens": chance.randint(2, 64),
        "width": 8 * chance.randint(1, 64),
        "blocks": chance.randint(3, 12),
    }


def _largest(chance):
    """Draw a limit that the batch fills exactly in every second call, and that leaves more than half of an image in the
    other calls. The batch is odd, because `round` turns both 3.5 and 4.5 into 4."""
    of_an_image = chance.randint(10**5, 10**6)
    # so that rounding limit and network to images separately gives a wrong answer
    network = int(of_an_image * (chance.randint(2, 20) + chance.uniform(0.6, 0.9)))
    left = chance.turn([of_an_image // 2 + 1, 0])
    return {
        "limit": network + (2 * chance.randint(1, 30) + 1) * of_an_image + left,
        "network": network,
        "of_an_image": of_an_image,
    }


def _sharded(method, parameters, ranks, **other):
    return (other | {name: rule for name, rule in RULES.items() if name not in other})[method](parameters, ranks)


RULES = {
    "ddp": lambda n, ranks: 16 * n,
    "zero": lambda n, ranks: 8 * n + 8 * n / ranks,
    "fsdp": lambda n, ranks: 16 * n / ranks,
}


def _but(**other):
    return lambda method, parameters, ranks: _sharded(method, parameters, ranks, **other)


def _state(chance):
    """Draw numbers of parameters as integers and as floats, because the notebook passes 7e9."""
    parameters = 5040 * chance.randint(1, 999)
    return {
        "method": chance.turn(["ddp", "zero", "fsdp"]),
        "parameters": parameters if chance.call < 3 else 1e4 * parameters,
        "ranks": chance.randint(4, 10),
    }


ANSWERS = {
    "block_parameters": Function(
        lambda chance: {"width": 8 * chance.randint(1, 100)},
        lambda width: 12 * width * width + 13 * width,
        {
            "the biases are missing: each of the six linear layers has one": lambda width: (
                12 * width * width + 4 * width
            ),
            (
                "4 w parameters are missing: each norm has w weights and w biases, and `up` has 4 w biases"
            ): lambda width: 12 * width * width + 9 * width,
            "a linear layer is missing: attention has four, which are query, key, value and out": lambda width: (
                11 * width * width + 12 * width
            ),
            "a linear layer is missing: the MLP has two, up and down": lambda width: 8 * width * width + 8 * width,
            (
                "2 w parameters are missing: each of the two norms has weights and biases, and each of the six"
                " linear layers has biases"
            ): lambda width: 12 * width * width + 11 * width,
        },
    ),
    "state_bytes": Function(
        lambda chance: {"parameters": chance.randint(10**4, 10**7)},
        lambda parameters: [4 * parameters, 4 * parameters, 8 * parameters],
        {
            "your result counts numbers, not bytes: multiply by the 4 bytes of a float32": lambda parameters: [
                parameters,
                parameters,
                2 * parameters,
            ],
            "Adam's state is too small: it has two moments per parameter, so two numbers": (
                lambda parameters: [4 * parameters] * 3
            ),
            "Adam's state is missing: it has two numbers per parameter": lambda parameters: [
                4 * parameters,
                4 * parameters,
                0,
            ],
            "your result is the sum of the three sizes: return a list of the three sizes": lambda parameters: (
                16 * parameters
            ),
            "your result has 8 bytes per number, as float64 has: a float32 number has 4 bytes": lambda parameters: [
                8 * parameters,
                8 * parameters,
                16 * parameters,
            ],
        },
    ),
    "activation_bytes": Function(
        _shape,
        _activation_bytes,
        {
            "your result counts numbers, not bytes: multiply by the 4 bytes of a float32": lambda **of: (
                _activation_bytes(**of, bytes_of_one=1)
            ),
            "your result is for one block, but all blocks keep activations: multiply by `blocks`": lambda **of: (
                _activation_bytes(**of | {"blocks": 1})
            ),
            "your result is for one image, but each image has its own activations: multiply by `batch`": lambda **of: (
                _activation_bytes(**of | {"batch": 1})
            ),
            "each layer's output counts as one width, but the outputs of `up` and GELU have 4 widths": lambda **of: (
                _activation_bytes(**of, each=10)
            ),
            (
                "your result has 8 widths, those of GELU and down: add the other rows of the table, 16 in all"
            ): lambda **of: _activation_bytes(**of, each=8),
        },
    ),
    "largest_batch": Function(
        _largest,
        lambda limit, network, of_an_image: (limit - network) // of_an_image,
        {
            "your batch does not fit: round down": lambda limit, network, of_an_image: (
                -(-(limit - network) // of_an_image)
            ),
            "your batch is too small: a batch that takes all bytes fits": lambda limit, network, of_an_image: (
                (limit - network - 1) // of_an_image
            ),
            "your result is not a whole number of images: round down": lambda limit, network, of_an_image: (
                (limit - network) / of_an_image
            ),
            "`network` is added to the limit, but the network needs a part of it: subtract it": (
                lambda limit, network, of_an_image: (limit + network) // of_an_image
            ),
            "`network` is not subtracted: the network needs a part of the memory": lambda limit, network, of_an_image: (
                limit // of_an_image
            ),
            (
                "your result is the free bytes, not a number of images: divide by `of_an_image`"
            ): lambda limit, network, of_an_image: limit - network,
        },
    ),
    "checkpointed_bytes": Function(
        _shape,
        _checkpointed,
        {
            "the recomputed block is missing: it has all its 16 widths in memory": lambda **of: _checkpointed(
                **of, again=0
            ),
            "the input of the recomputed block is counted twice: it is among the blocks' inputs": (
                lambda **of: _checkpointed(**of, again=16)
            ),
            "your result counts the input of one block, but every block keeps its input": lambda **of: _checkpointed(
                **of | {"blocks": 1}
            ),
            "your result is without checkpointing: only one block at a time has all its activations": _activation_bytes,
            "your result counts numbers, not bytes: multiply by the 4 bytes of a float32": lambda **of: _checkpointed(
                **of, bytes_of_one=1
            ),
        },
    ),
    "sharded_bytes": Function(
        _state,
        _sharded,
        {
            "`ddp` is divided by `ranks`, but each rank of DDP has the complete state": _but(
                ddp=lambda n, ranks: 16 * n / ranks
            ),
            "`zero` shards all parts, but stage 1 shards only the optimizer's state": _but(
                zero=lambda n, ranks: 16 * n / ranks
            ),
            "`zero` lacks the optimizer's state: stage 1 divides it by `ranks`": _but(zero=lambda n, ranks: 8 * n),
            "`zero` shards the gradients, but in stage 1 each rank keeps all gradients": _but(
                zero=lambda n, ranks: 4 * n + 12 * n / ranks
            ),
            "`fsdp` does not shard the parameters: FSDP also divides them by `ranks`": _but(
                fsdp=lambda n, ranks: 4 * n + 12 * n / ranks
            ),
        },
    ),
}
