"""The limits of the challenge of unit 10_challenge. The training script, the notebook and the grader use them. This
module does not import torch."""

import re

RANKS, NODES = 4, 2
NETWORK = "100mbit"  # link of each node
MEMORY = 7 * 2**20  # bytes of each virtual GPU
LOSS = 1.2  # the highest loss that counts as reached, on text that no rank has seen
SECONDS = 60  # limit of a training run
LENGTH = 64  # bytes of text in a window
TRAINING, UNSEEN = 300_000, 256 * (LENGTH + 1)  # bytes of text to train on, and to judge with
FACTOR = 2  # largest ratio of the measured and the predicted speed-up


def out_of_memory(error):
    """Return the sentence of an OutOfMemory, with a remedy for the challenge: its solutions do not use options such as
    the batch size."""
    return f"{re.split(': (?:take|most of)', str(error))[0]}: take fewer windows at a time, or hold less on a rank"
