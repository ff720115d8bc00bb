"""The limits of the challenge of unit 10_challenge. The training script, the notebook and the grader use them; none of
that needs torch here."""

RANKS, NODES = 4, 2
NETWORK = "100mbit"  # of each node
MEMORY = 7 * 2**20  # bytes of each virtual GPU
LOSS = 1.2  # to reach, on text that no rank has seen
SECONDS = 60  # that a training may take at most
LENGTH = 64  # bytes of text in a window
TRAINING, UNSEEN = 300_000, 256 * (LENGTH + 1)  # bytes of text to train on, and to judge with
FACTOR = 2  # by which the measured speed-up may differ from the predicted one
