"""How its known answers are proved right or wrong: see answers.proofs."""

from answers.proofs import Case, Run

EXPECTED = {"prediction_efficiency": (0.01, 1)}
WHOLE = ("intra_rank",)
# ChainerMN's parts are equal: one image is dealt twice
CASES = {"pytorch": Case("2,1", 23, 4), "chainer": Case("2,1", 26, 3, 30)}

# Where all images of a rank are one batch, no step depends on their order; where not, an epoch has several steps, and
# an odd batch.
ONE_BATCH, SEVERAL = (
    Run("from_scratch.py", 3, nodes=2, replaced=("SIZE = 2, 32, 0.02, 64", f"SIZE = 2, {size}, 0.02, 16"))
    for size in (8, 3)
)
ACCURACY = Run("mpi_accuracy.py", 4, mpi=True, printed=".")
MANY_ALIKE = ACCURACY._replace(
    replaced=("10 * (comm.rank + 1), 60 + 10 * comm.rank", "10_000 * (1 + comm.rank // 3), 30_000")
)
RUNS = {"mpi_accuracy.py": ACCURACY, "from_scratch.py": ONE_BATCH}
OF_GAP = {
    ("mpi_accuracy.py", "mpi_accuracy"): (ACCURACY, MANY_ALIKE),
    ("from_scratch.py", "from_scratch"): (ONE_BATCH, SEVERAL),
}


def intra_rank(chance):
    per_node = chance.randint(1, 8)
    return {"rank": chance.randrange(per_node * 8), "per_node": per_node}


def total_accuracy(chance):
    images = [chance.randint(1, 100) for _ in range(chance.randint(1, 8))]
    return {"correct": [chance.randint(0, count) for count in images], "images": images}


def scaling(chance):
    workers = [1, *chance.sample(range(2, 65), chance.randint(1, 5))]
    chance.shuffle(workers)
    return {"throughputs": {count: chance.uniform(0.2, 1) * 50 * count for count in workers}}


def most_workers(chance):
    """A table of `scaling`. In some, an efficiency is exactly the least, or just below it, or rises again with more
    workers, or above 1."""
    table = [[1, 50.0, 1.0, 1.0]]
    for workers in sorted(chance.sample(range(2, 65), chance.randint(1, 5))):
        efficiency = chance.choice((1, chance.randint(2, 72))) / 64  # a 64th: slower than one worker
        table.append([workers, 50 * workers * efficiency, workers * efficiency, efficiency])
    return {
        "table": table,
        "least": chance.choice((chance.uniform(0.2, 1), chance.choice(table)[3], min(1, table[-1][3] + 0.001))),
    }


def allreduce_seconds(chance):
    return {
        "parameters": chance.randint(1, 10**8),
        "workers": chance.randint(1, 64),
        "megabits": chance.choice((10_000, 1_000, 100, 20)),
    }


INPUTS = {
    "intra_rank": intra_rank,
    "total_accuracy": total_accuracy,
    "scaling": scaling,
    "most_workers": most_workers,
    "allreduce_seconds": allreduce_seconds,
}
