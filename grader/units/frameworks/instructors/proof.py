"""How its known answers are proved right or wrong: see grader.instructors.proofs."""


def weights_of_fit(chance):
    return {"parts": [chance.randint(1, 64) for _ in range(chance.randint(1, 8))]}


def seconds_in_python(chance):
    step = chance.uniform(1, 20)
    return {"step": step, "operations": _operations(chance, 0, step, chance.randint(1, 4))}


def _operations(chance, first, last, number):
    """[[begin, end]] of operations after each other between `first` and `last`, each followed by those that it calls."""
    times = sorted(chance.uniform(first, last) for _ in range(2 * number))
    of_each = [[[begin, end], *_operations(chance, begin, end, chance.choice([0, 0, 1, 2]))] for begin, end in zip(times[::2], times[1::2])]
    return sum(of_each, [])


def threads_speedup(chance):
    return {"python": chance.uniform(0.1, 10), "kernels": chance.uniform(0, 50), "threads": chance.randint(1, 16)}


INPUTS = {
    "weights_of_fit": weights_of_fit,
    "seconds_in_python": seconds_in_python,
    "threads_speedup": threads_speedup,
}
