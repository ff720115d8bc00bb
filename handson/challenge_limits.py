"""The limits of the challenge of unit 10_challenge. The training script, the notebook and the grader use them without
importing torch."""

RANKS, NODES = 4, 2
NETWORK = "100mbit"  # per node
MEMORY = 7 * 2**20  # bytes per virtual GPU
LOSS = 1.2  # target, on text that no rank has seen
SECONDS = 60  # longest training time
LENGTH = 64  # bytes of text in a window
TRAINING, UNSEEN = 300_000, 256 * (LENGTH + 1)  # bytes of text for training, and for the judgement
FACTOR = 2  # by which the measured speed-up may differ from the predicted one
