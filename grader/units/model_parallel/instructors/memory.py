"""The answers to the notebook's gaps on memory: inputs, what is right, and typical mistakes."""

from grader.instructors.notebook_answers import Function

ANSWERS = {
    "block_parameters": Function(
        lambda chance: {"width": 8 * chance.randint(1, 100)},
        lambda width: 12 * width * width + 13 * width,
        {
            "the biases are missing: each of the six products has one": lambda width: 12 * width * width + 4 * width,
            "the norms are missing: each has a weight and a bias": lambda width: 12 * width * width + 9 * width,
            "attention has four products: query, key, value and out": lambda width: 11 * width * width + 12 * width,
            "the MLP has two products, up and down": lambda width: 8 * width * width + 8 * width,
        },
    ),
}
