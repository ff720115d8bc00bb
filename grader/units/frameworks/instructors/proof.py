"""How its known answers are proved right or wrong: see grader.instructors.proofs."""


def weights_of_fit(chance):
    return {"parts": [chance.randint(1, 64) for _ in range(chance.randint(1, 8))]}


def seconds_in_python(chance):
    step = chance.uniform(1, 20)
    return {"step": step, "operations": sorted(tuple(sorted((chance.uniform(0, step), chance.uniform(0, step)))) for _ in range(chance.randint(1, 6)))}


def threads_speedup(chance):
    return {"python": chance.uniform(0.1, 10), "kernels": chance.uniform(0, 50), "threads": chance.randint(1, 16)}


INPUTS = {
    "weights_of_fit": weights_of_fit,
    "seconds_in_python": seconds_in_python,
    "threads_speedup": threads_speedup,
}
