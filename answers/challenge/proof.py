"""How its known answers are proved right or wrong: see answers.proofs."""


def training_seconds(chance):
    return {
        "steps": chance.randint(0, 1000),
        "compute": chance.uniform(0, 1),
        "exchanges": chance.randint(0, 1000),
        "size": chance.uniform(1, 1e8),
        "ranks": chance.randint(1, 16),
        "rate": chance.uniform(1e5, 1e10),
    }
