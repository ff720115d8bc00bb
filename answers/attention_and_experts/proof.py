"""How its known answers are proved right or wrong: see answers.proofs."""

from answers.proofs import Run

EXPECTED = {"prediction_zigzag": (0.5, 4), "prediction_slowest": (1, 2)}  # times as long
WHOLE = ("keys_seen",)
RUNS = {
    "pytorch/experts.py": Run(
        "train_experts.py",
        2,
        (
            "-e 1 -b 4 --size 8 --width 16 --heads 2 --blocks 2 --dataset {folder}/data.npz --method balanced"
            " --capacity-factor 1",
        ),
    )
}


def score_bytes(chance):
    return {
        "way": chance.choice(["one process", "ring", "heads"]),
        **{name: chance.randint(1, 4096) for name in ("tokens", "heads", "ranks")},
    }


def sent_bytes(chance):
    return {
        "way": chance.choice(["ring", "heads"]),
        **{name: chance.randint(1, 4096) for name in ("tokens", "width", "ranks")},
    }


def keys_seen(chance):
    return {"places": sorted(chance.sample(range(500), chance.randint(1, 40)))}


def slowest(chance):
    ranks, each = chance.randint(1, 16), chance.randint(1, 8)
    return {"counts": [chance.randint(0, 1000) + 1 for _ in range(ranks * each)], "ranks": ranks}


INPUTS = {"score_bytes": score_bytes, "sent_bytes": sent_bytes, "keys_seen": keys_seen, "slowest": slowest}
