"""The answers to the gaps in notebook 07_frameworks: inputs, what is right, and typical mistakes."""

from grader.instructors.notebook_answers import Function


def _parts(chance):
    """Return the images of two or more replicas; in one call, two replicas have the same number. No weight lies halfway
    between hundredths, where rounding is ambiguous."""
    parts = [
        chance.randint(1, 9),
        chance.choice([*range(11, 20), *range(21, 31)]),
        *(chance.randint(31, 40) for _ in range(chance.turn([0, 1, 2]))),
    ]
    return {"parts": parts + parts[: chance.turn([0, 0, 0, 1, 0, 0])]}


def _times(chance):
    """Return cases in which Python is the bottleneck, with and without longer kernels, and cases in which it is not."""
    threads, python = chance.randint(3, 9), chance.uniform(0.5, 3)
    limit = (threads - 1) * python  # kernels of this duration hide the Python of the other threads
    kernels = chance.turn(
        [limit * chance.uniform(0.5, 0.8), limit * chance.uniform(1.2, 4), python * chance.uniform(0.2, 0.8)]
    )
    return {"python": python, "kernels": kernels, "threads": threads}


def _speedup(python, kernels, threads):
    return threads * (python + kernels) / max(threads * python, python + kernels)


def _step(chance):
    """Return a step with consecutive operations. Some of them, in half of the calls also the last one, call two others
    in sequence, and the first of these calls another one. So operations are nested, like in a thread. They are lists,
    as in the notebook."""
    operations, now, calling = [], chance.uniform(0.1, 0.3), chance.turn([1, 0])
    for number in range(4):
        length = chance.uniform(0.5, 1.5)
        inside = (
            [(0.1, chance.uniform(0.5, 0.6)), (0.2, 0.4), (0.65, chance.uniform(0.7, 0.9))]
            if number % 2 == calling
            else []
        )
        operations += [[now + begin * length, now + end * length] for begin, end in [(0, 1), *inside]]
        now += length + chance.uniform(0.1, 0.4)
    return {"step": now + chance.uniform(0.5, 1), "operations": operations}


def _in_python(step, operations):
    busy, end = 0.0, 0.0
    for begin, last in sorted(operations):
        busy += max(0.0, last - max(begin, end))
        end = max(end, last)
    return step - busy


def _since_the_one_before(step, operations):
    """Return a wrong result: it uses the end of the previous operation instead of the latest end."""
    ends = [0.0, *(end for _, end in operations)]
    return step - sum(max(0.0, end - max(begin, before)) for (begin, end), before in zip(operations, ends))


def _sum(operations):
    return sum(end - begin for begin, end in operations)


ANSWERS = {
    "weights_of_fit": Function(
        _parts,
        lambda parts: [1 / (len(parts) * images) for images in parts],
        {
            "`weights_of_fit` weights all images equally, but under fit each replica counts the same": lambda parts: [
                1 / sum(parts) for _ in parts
            ],
            (
                "`weights_of_fit` returns the weight within one replica: the mean over the replicas also divides by"
                " their number"
            ): (lambda parts: [1 / images for images in parts]),
            (
                "`weights_of_fit` returns the weight of a whole replica: divide it by the number of its images"
            ): lambda parts: [1 / len(parts) for _ in parts],
            (
                "`weights_of_fit` returns each replica's share of the images, but the weight of one image is asked for"
            ): lambda parts: [images / sum(parts) for images in parts],
        },
    ),
    "seconds_in_python": Function(
        _step,
        _in_python,
        {
            (
                "`seconds_in_python` subtracts called operations twice: count each moment once, for any number of"
                " running operations"
            ): lambda step, operations: step - _sum(operations),
            (
                "`seconds_in_python` compares with the end of the previous operation, which may end before its caller:"
                " compare with the latest end so far"
            ): (_since_the_one_before),
            "`seconds_in_python` returns the time in operations: subtract it from the step": lambda step, operations: (
                step - _in_python(step, operations)
            ),
            (
                "`seconds_in_python` counts only before the first and after the last operation: Python also runs"
                " between them"
            ): (
                lambda step, operations: (
                    step - (max(end for _, end in operations) - min(begin for begin, _ in operations))
                )
            ),
            "`seconds_in_python` returns a share of the step: return seconds": lambda step, operations: (
                _in_python(step, operations) / step
            ),
            (
                "`seconds_in_python` returns the time in operations and counts some twice: count each moment once, and"
                " subtract the sum from the step"
            ): lambda step, operations: _sum(operations),
        },
    ),
    "threads_speedup": Function(
        _times,
        _speedup,
        {
            "`threads_speedup` ignores the GIL: only one thread at a time runs Python": (
                lambda python, kernels, threads: threads
            ),
            (
                "`threads_speedup` starts kernels only after all Python has ended: while one thread is in a kernel,"
                " another thread can run Python"
            ): lambda python, kernels, threads: threads * (python + kernels) / (threads * python + kernels),
            (
                "`threads_speedup` is right only if Python is the bottleneck: a step also takes at least python +"
                " kernels"
            ): (lambda python, kernels, threads: (python + kernels) / python),
            (
                "`threads_speedup` returns the time of the step: the speed-up compares images per second"
            ): lambda python, kernels, threads: max(threads * python, python + kernels),
        },
    ),
}
