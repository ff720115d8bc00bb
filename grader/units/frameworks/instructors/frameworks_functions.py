"""The answers to the gaps in notebook 07_frameworks: inputs, what is right, and typical mistakes."""

from grader.instructors.notebook_answers import Function


def _parts(chance):
    """The images of two replicas or more; in one call two have equally many. No weight lies halfway between
    hundredths, which may be rounded either way."""
    parts = [
        chance.randint(1, 9),
        chance.choice([*range(11, 20), *range(21, 31)]),
        *(chance.randint(31, 40) for _ in range(chance.turn([0, 1, 2]))),
    ]
    return {"parts": parts + parts[: chance.turn([0, 0, 0, 1, 0, 0])]}


def _times(chance):
    """Cases in which Python is the limit, also where it takes longer than the kernels, and others in which it is
    not."""
    threads, python = chance.randint(3, 9), chance.uniform(0.5, 3)
    limit = (threads - 1) * python  # as many seconds in kernels hide the Python of the other threads
    kernels = chance.turn(
        [limit * chance.uniform(0.5, 0.8), limit * chance.uniform(1.2, 4), python * chance.uniform(0.2, 0.8)]
    )
    return {"python": python, "kernels": kernels, "threads": threads}


def _speedup(python, kernels, threads):
    return threads * (python + kernels) / max(threads * python, python + kernels)


def _step(chance):
    """A step with operations after each other. Some, the last one in half of the calls, call two others, one after the
    other, the first of which calls one more; so operations lie inside of others, as those of a thread do. Lists, as the
    notebook has them."""
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
    """With the end of the operation before in place of the latest end."""
    ends = [0.0, *(end for _, end in operations)]
    return step - sum(max(0.0, end - max(begin, before)) for (begin, end), before in zip(operations, ends))


def _sum(operations):
    return sum(end - begin for begin, end in operations)


ANSWERS = {
    "weights_of_fit": Function(
        _parts,
        lambda parts: [1 / (len(parts) * images) for images in parts],
        {
            "that is the weight if all images count the same; under fit, each replica counts the same": lambda parts: [
                1 / sum(parts) for _ in parts
            ],
            "that is the weight in the mean of one replica; the mean over the replicas divides by their number, too": (
                lambda parts: [1 / images for images in parts]
            ),
            "that is the weight of a whole replica, not of one of its images": lambda parts: [
                1 / len(parts) for _ in parts
            ],
            "that is the share of the images that a replica has": lambda parts: [
                images / sum(parts) for images in parts
            ],
        },
    ),
    "seconds_in_python": Function(
        _step,
        _in_python,
        {
            (
                "operations that others call are subtracted twice: count each moment once, however many operations"
                " are under way"
            ): lambda step, operations: step - _sum(operations),
            (
                "the operation before may be one that was called, and end before its caller does: compare with the"
                " latest end of all before"
            ): (_since_the_one_before),
            "that is the time in operations; Python has the remaining one": lambda step, operations: (
                step - _in_python(step, operations)
            ),
            "that is the time before the first operation and after the last; Python also runs between them": (
                lambda step, operations: (
                    step - (max(end for _, end in operations) - min(begin for begin, _ in operations))
                )
            ),
            "that is the share of the step; return seconds": lambda step, operations: (
                _in_python(step, operations) / step
            ),
            (
                "that is the time in the operations, of which some are counted twice; Python has the remaining one"
            ): lambda step, operations: _sum(operations),
        },
    ),
    "threads_speedup": Function(
        _times,
        _speedup,
        {
            "that is the speed-up without the GIL: Python runs in one thread at a time": (
                lambda python, kernels, threads: threads
            ),
            (
                "that is the speed-up if all Python must be over before kernels begin: while one thread is in a"
                " kernel, another one may be in Python"
            ): lambda python, kernels, threads: threads * (python + kernels) / (threads * python + kernels),
            "that is right only if Python is the limit; a step also takes python + kernels at least": (
                lambda python, kernels, threads: (python + kernels) / python
            ),
            (
                "that is the time of the step; the speed-up compares the images per second"
            ): lambda python, kernels, threads: max(threads * python, python + kernels),
        },
    ),
}
