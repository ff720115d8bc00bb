"""The answers to the gaps in notebook 01_single_gpu: inputs, what is right, and typical mistakes."""

from grader.instructors.notebook_answers import Function


def _steps(chance):
    """Return the batch size and the seconds of some steps. One call has a single step. In another call, two steps
    took the same time."""
    count, again = chance.turn([4, 2, 9, 1, 5, 3]), chance.turn([0, 0, 1, 0, 0, 0])
    seconds = [chance.uniform(0.01, 0.5) for _ in range(count)]
    return {"batchsize": chance.randint(2, 64), "step_seconds": seconds + seconds[:again]}


def _rates(chance):
    """Return batch size -> images/s, and a share. The rates rise with the batch size, and fall for the largest. In
    turns:

    - three sizes in the middle are not good enough; the third largest is the best, and relative to the second
      largest, another size would be good enough
    - one size has exactly `share` of the best throughput, which is not a whole number, and a smaller size reaches the
      share only without the decimals
    - the smallest size that is good enough comes first in the dictionary, and a larger size has the same rate
    - a larger size that is good enough is slower than the smallest one; without their decimals, neither would be good
      enough
    - only the best size is good enough
    - the smallest size that is good enough comes last in the dictionary

    In two calls, a size is good enough only after rounding to whole percent. In half of the calls, the batch sizes
    are not powers of two.
    """
    top, exactly = 4 * chance.randint(75, 225) + 1.5, chance.turn([False, True, False])
    smallest = 1 << chance.randint(0, 3)
    sizes = chance.turn([[smallest << step for step in range(8)], sorted(chance.sample(range(1, 200), 8))])
    parts = [
        (0.1, 0.14),
        (0.2, 0.27),
        (0.42, 0.48),
        (0.5, 0.5) if exactly else (0.596, 0.599),
        (0.75, 0.8),
        (0.93, 0.99),
        (1, 1),
        (0.7, 0.72),
    ]
    rates = {size: top * chance.uniform(*part) for size, part in zip(sizes, parts)}
    for place, part in chance.turn(
        [
            {0: 0.39, 1: 0.45, 2: 0.33, 3: 0.3, 4: 0.35, 5: 1, 6: 0.95},
            {2: 0.5 - 0.2 / top},
            {},
            {3: 0.5 + 0.2 / top, 5: 0.5 + 0.1 / top},
            {},
            {},
        ]
    ).items():
        rates[sizes[place]] = top * part
    *middle, high, best, largest = sizes
    chance.shuffle(middle)
    first, last = chance.turn([(high, best), (best, high)])
    share = chance.turn([0.4, 0.5, 0.6, 0.5, 0.995, 0.6])
    order = [first, *middle, last, largest]
    if place := chance.turn([None, None, "first", None, None, "last"]):
        good = min(_good_enough(rates, share))
        order.remove(good)
        order.insert(0 if place == "first" else len(order), good)
        if place == "first":
            rates[sizes[sizes.index(good) + 1]] = rates[good]
    return {"rates": {size: rates[size] for size in order}, "share": share}


def _seconds(chance):
    """Return the seconds of the parts of an epoch, and one of the parts. In half of the calls, this part takes the
    longest time. In one call, another part takes equally long."""
    parts = ["load", "enlarge", "forward", "backward", "optimize", "evaluate"]
    part = chance.turn(parts)
    seconds = {one: chance.uniform(0.1, 1) for one in parts}
    longest = part if chance.turn([True, False]) else next(one for one in parts if one != part)
    seconds |= {longest: chance.uniform(1.2, 3)}
    return {"seconds": seconds | chance.turn([{}, {}, {}, {}, {}, {"forward": seconds[part]}]), "part": part}


def _throughput(batchsize, step_seconds):
    return batchsize * len(step_seconds) / sum(step_seconds)


def _mean_of_rates(batchsize, step_seconds):
    return sum(batchsize / seconds for seconds in step_seconds) / len(step_seconds)


def _good_enough(rates, share, best=None):
    return [size for size in rates if rates[size] >= share * (best or max(rates.values()))]


def _down_from_the_best(rates, share):
    """Return a typical mistake: it goes down from the best batch size, and stops at the first size that is not good
    enough."""
    best = max(rates, key=rates.get)
    too_slow = [size for size in rates if size < best and size not in _good_enough(rates, share)]
    return min(size for size in _good_enough(rates, share) if size > max(too_slow, default=0))


def _limit(seconds, part):
    return sum(seconds.values()) / (sum(seconds.values()) - seconds[part])


ANSWERS = {
    "throughput": Function(
        _steps,
        _throughput,
        {
            (
                "`throughput` averages the steps' throughputs, so a slow step counts too little: divide all images by"
                " all seconds"
            ): (_mean_of_rates),
            "`throughput` divides the images of one step by the time of all steps": lambda batchsize, step_seconds: (
                batchsize / sum(step_seconds)
            ),
            "`throughput` counts steps per second, not images per second": lambda batchsize, step_seconds: (
                len(step_seconds) / sum(step_seconds)
            ),
            "`throughput` returns seconds per image, not images per second": lambda batchsize, step_seconds: (
                1 / _throughput(batchsize, step_seconds)
            ),
        },
    ),
    "smallest_batch": Function(
        _rates,
        lambda rates, share: min(_good_enough(rates, share)),
        {
            (
                "`smallest_batch` returns the batch size with the best throughput, but a smaller one may be nearly as"
                " fast"
            ): (lambda rates, share: max(rates, key=rates.get)),
            (
                "`smallest_batch` returns the largest batch size that is fast enough, not the smallest"
            ): lambda rates, share: max(_good_enough(rates, share)),
            (
                'a batch size with exactly `share` of the best throughput is fast enough, too: "at least" means >='
            ): lambda rates, share: min(size for size in rates if rates[size] > share * max(rates.values())),
            (
                "`smallest_batch` returns the first batch size in `rates` that is fast enough, but the dictionary is"
                " not sorted"
            ): (lambda rates, share: _good_enough(rates, share)[0]),
            "`smallest_batch` always requires 90 % of the best throughput: `share` is the required share": (
                lambda rates, share: min(_good_enough(rates, 0.9))
            ),
            (
                "`smallest_batch` returns the smallest throughput that is high enough: return the batch size, which is"
                " the key"
            ): (lambda rates, share: min(rates[size] for size in _good_enough(rates, share))),
            "`smallest_batch` returns a throughput: return the batch size, which is the key": lambda rates, share: (
                rates[min(_good_enough(rates, share))]
            ),
            (
                "`smallest_batch` stops at the first batch size that is too slow, going down from the best one: a"
                " smaller batch size may still be fast enough"
            ): (_down_from_the_best),
            (
                "`smallest_batch` compares with the throughput of the largest batch size, but another one may have the"
                " best throughput"
            ): lambda rates, share: min(_good_enough(rates, share, rates[max(rates)])),
        },
    ),
    "limit": Function(
        _seconds,
        _limit,
        {
            "`limit` returns the limit for the longest part, not for `part`": (
                lambda seconds, part: _limit(seconds, max(seconds, key=seconds.get))
            ),
            "`limit` subtracts 1, but the result is a factor: 1 means that nothing is gained": lambda seconds, part: (
                _limit(seconds, part) - 1
            ),
            "`limit` returns percent: return a factor": lambda seconds, part: 100 * _limit(seconds, part),
            (
                "`limit` returns the seconds that are saved: return the factor by which the epoch becomes faster"
            ): lambda seconds, part: seconds[part],
            "`limit` makes the part twice as fast: at the limit, the part takes no time at all": lambda seconds, part: (
                sum(seconds.values()) / (sum(seconds.values()) - seconds[part] / 2)
            ),
            "`limit` returns the part's share of the epoch, not the speed-up": lambda seconds, part: (
                seconds[part] / sum(seconds.values())
            ),
            (
                "`limit` is upside down: divide the time of the epoch now by its time without the part"
            ): lambda seconds, part: 1 / _limit(seconds, part),
            (
                "`limit` divides the epoch by the part: divide it by the time that is left without the part"
            ): lambda seconds, part: sum(seconds.values()) / seconds[part],
        },
    ),
}
