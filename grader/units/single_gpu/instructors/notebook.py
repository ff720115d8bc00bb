"""The answers to the gaps in notebook 01_single_gpu: inputs, what is right, and typical mistakes. recorded.json is made of them."""

from grader.instructors.notebook_answers import Function


def _rates(chance):
    """Batch size -> images/s: they rise, then stay about level, and fall for the largest batch size."""
    top = chance.uniform(300, 900)
    rates = {size: top * size / (size + chance.uniform(2, 5)) for size in (1, 2, 4, 8)}
    rates |= {size: top * chance.uniform(0.93, 1.0) for size in (16, 32, 64, 128)}
    return rates | {64: top * 1.02, 128: top * 0.7}


def _throughput(batchsize, step_seconds):
    return batchsize * len(step_seconds) / sum(step_seconds)


def _mean_of_rates(batchsize, step_seconds):
    return sum(batchsize / seconds for seconds in step_seconds) / len(step_seconds)


def _good_enough(rates, share, best=None):
    return [size for size in rates if rates[size] >= share * (best or max(rates.values()))]


def _limit(seconds, part):
    return sum(seconds.values()) / (sum(seconds.values()) - seconds[part])


ANSWERS = {
    "throughput": Function(
        lambda chance: {"batchsize": chance.randint(2, 64), "step_seconds": [chance.uniform(0.01, 0.5) for _ in range(chance.randint(2, 9))]},
        _throughput,
        {
            "the mean of the steps' throughputs: a slow step then counts too little; divide all images by all seconds": _mean_of_rates,
            "the images of one step are divided by the time of all": lambda batchsize, step_seconds: batchsize / sum(step_seconds),
            "steps per second, not images per second": lambda batchsize, step_seconds: len(step_seconds) / sum(step_seconds),
            "seconds per image, not images per second": lambda batchsize, step_seconds: 1 / _throughput(batchsize, step_seconds),
        },
    ),
    "smallest_batch": Function(
        lambda chance: {"rates": _rates(chance), "share": chance.turn([0.4, 0.5, 0.6])},
        lambda rates, share: min(_good_enough(rates, share)),
        {
            "that is the batch size with the best throughput; a smaller one may be nearly as good": lambda rates, share: max(rates, key=rates.get),
            "that is the largest batch size that is good enough, not the smallest": lambda rates, share: max(_good_enough(rates, share)),
            "that is the throughput; return the batch size, the key": lambda rates, share: rates[min(_good_enough(rates, share))],
            "the largest batch size need not have the best throughput": lambda rates, share: min(_good_enough(rates, share, rates[max(rates)])),
        },
    ),
    "limit": Function(
        lambda chance: {
            "seconds": {part: chance.uniform(0.1, 2) for part in ("load", "forward", "backward", "optimize")},
            "part": chance.turn(["load", "forward", "backward", "optimize"]),
        },
        _limit,
        {
            "that is the part's share of the epoch": lambda seconds, part: seconds[part] / sum(seconds.values()),
            "that is what the epoch would shrink to; the speed-up is the other way round": lambda seconds, part: 1 / _limit(seconds, part),
            "the epoch is divided by the part; divide it by what is left without the part": lambda seconds, part: sum(seconds.values()) / seconds[part],
        },
    ),
}
