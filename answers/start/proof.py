"""How its known answers are proved right or wrong: see answers.proofs."""

EXPECTED = {"prediction": (0.5, 4)}
WHOLE = ("workers",)


def workers(chance):
    return {"select": chance.randint(1, 16), "mpiprocs": chance.randint(1, 8)}


INPUTS = {"workers": workers}
