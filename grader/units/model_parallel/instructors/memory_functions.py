"""The answers to the notebook's gaps on memory: inputs, what is right, and typical mistakes."""

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
    """In every second call, the batch takes all that there is; in the others, more than half of an image is left. Its
    size is odd, since `round` takes 4.5 for 4, but 3.5 for 4, too."""
    of_an_image = chance.randint(10**5, 10**6)
    # each rounded to images, limit and network don't give the answer
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
    """The notebook has a number of parameters as an integer, and 7 billion as a float."""
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
            "the biases are missing: each of the six products has one": lambda width: 12 * width * width + 4 * width,
            (
                "4 w numbers are missing: each norm has a weight and a bias of w numbers each, and `up` has a"
                " bias of 4 w"
            ): lambda width: 12 * width * width + 9 * width,
            "attention has four products: query, key, value and out": lambda width: 11 * width * width + 12 * width,
            "the MLP has two products, up and down": lambda width: 8 * width * width + 8 * width,
            (
                "2 w numbers are missing: each of the two norms has a weight and a bias, and each of the six"
                " products has a bias"
            ): lambda width: 12 * width * width + 11 * width,
        },
    ),
    "state_bytes": Function(
        lambda chance: {"parameters": chance.randint(10**4, 10**7)},
        lambda parameters: [4 * parameters, 4 * parameters, 8 * parameters],
        {
            "these are numbers, not bytes: a float32 has 4 bytes": lambda parameters: [
                parameters,
                parameters,
                2 * parameters,
            ],
            "Adam keeps two numbers for each parameter: the mean of its gradients, and of their squares": (
                lambda parameters: [4 * parameters] * 3
            ),
            "SGD without momentum keeps nothing, Adam does: two numbers for each parameter": lambda parameters: [
                4 * parameters,
                4 * parameters,
                0,
            ],
            "that is their sum; return a list with the three numbers": lambda parameters: 16 * parameters,
            "a float32 has 4 bytes; that is right for float64": lambda parameters: [
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
            "these are numbers, not bytes: a float32 has 4 bytes": lambda **of: _activation_bytes(**of, bytes_of_one=1),
            "that is one block: all of them keep their activations until backward": lambda **of: _activation_bytes(
                **of | {"blocks": 1}
            ),
            "that is one image: each image of the batch has activations of its own": lambda **of: _activation_bytes(
                **of | {"batch": 1}
            ),
            "each layer's output is counted, but `up` and GELU give 4 times the width": lambda **of: _activation_bytes(
                **of, each=10
            ),
            (
                "in the table, attention's and the norms' numbers are missing: the MLP keeps 8 of the 16 widths"
            ): lambda **of: _activation_bytes(**of, each=8),
        },
    ),
    "largest_batch": Function(
        _largest,
        lambda limit, network, of_an_image: (limit - network) // of_an_image,
        {
            "that does not fit: round down": lambda limit, network, of_an_image: -(-(limit - network) // of_an_image),
            "a batch that takes exactly `limit` bytes fits, too": lambda limit, network, of_an_image: (
                (limit - network - 1) // of_an_image
            ),
            "there is no half image: round down": lambda limit, network, of_an_image: (limit - network) / of_an_image,
            "the network takes memory away from the images: subtract it from the limit": (
                lambda limit, network, of_an_image: (limit + network) // of_an_image
            ),
            "the network itself takes some of the memory: subtract it first": lambda limit, network, of_an_image: (
                limit // of_an_image
            ),
            (
                "that is not a number of images: divide what is left by the bytes of one"
            ): lambda limit, network, of_an_image: limit - network,
        },
    ),
    "checkpointed_bytes": Function(
        _shape,
        _checkpointed,
        {
            "while a block is computed again, all 16 widths of it are there": lambda **of: _checkpointed(**of, again=0),
            "the input of the block that is computed again is counted twice: it is among those that all blocks keep": (
                lambda **of: _checkpointed(**of, again=16)
            ),
            "every block keeps its input: that of one block is counted": lambda **of: _checkpointed(
                **of | {"blocks": 1}
            ),
            "that is without checkpointing: only one block at a time has all its activations": _activation_bytes,
            "these are numbers, not bytes: a float32 has 4 bytes": lambda **of: _checkpointed(**of, bytes_of_one=1),
        },
    ),
    "sharded_bytes": Function(
        _state,
        _sharded,
        {
            "DDP divides the images, not the state: each rank has all of it": _but(ddp=lambda n, ranks: 16 * n / ranks),
            "ZeRO-1 divides the optimizer's state alone; each rank has all parameters and all gradients": _but(
                zero=lambda n, ranks: 16 * n / ranks
            ),
            "ZeRO-1 divides the optimizer's state: it is missing": _but(zero=lambda n, ranks: 8 * n),
            "stage 1 of ZeRO leaves each rank all gradients": _but(zero=lambda n, ranks: 4 * n + 12 * n / ranks),
            "FSDP divides the parameters as well": _but(fsdp=lambda n, ranks: 4 * n + 12 * n / ranks),
        },
    ),
}
