"""The answers to the gaps in notebook 03_multi_node: inputs, what is right, and typical mistakes."""

from grader.instructors.notebook_answers import Function


def _rank(chance):
    """Return a rank: in turns the last one of the first node, the first one of a later node, or one between. The
    number of ranks per node is not a power of two, because the last bits of the rank would then be right. There are
    so many possible jobs that a list of answers cannot replace the formula."""
    per_node = chance.choice([ranks for ranks in range(5, 100) if ranks.bit_count() > 1])
    node, place = chance.turn(
        [
            (0, per_node - 1),
            (1, 0),
            (3, 2),
            (2, per_node - 1),
            (5, 1),
            (chance.randint(6, 9), chance.randint(1, per_node - 1)),
        ]
    )
    return {"rank": node * per_node + place, "per_node": per_node}


def _parts(chance, ranks):
    """Return how many images each rank has, and how many of them are correct. In one call, a rank has no correct
    image. In another call, two ranks have equally many images; in a third, equally many correct images; in a fourth,
    both."""
    images = [chance.randint(10, 49), *(chance.randint(50, 99) for _ in range(ranks - 1))]
    correct = [chance.randint(1, 9), *(chance.randint(10, of_rank - 1) for of_rank in images[1:])]
    special = chance.turn([None, "nothing right", None, "alike", "as many images", "as many correct"])
    if special == "nothing right":
        correct[0] = 0
    elif special == "alike":
        correct[-1], images[-1] = correct[-2], images[-2]
    elif special == "as many images":
        images[0] = images[1]
    elif special == "as many correct":
        correct[0] = correct[1] = 9
    return {"correct": correct, "images": images}


def _throughputs(chance):
    """Return workers -> images/s, unordered. One worker never comes first, and comes last in two calls. 16 comes
    after 8 as a number, but before it as a text. In half of the calls, more workers are slower: two are slower than
    one, and the largest number is slower than half of it."""
    single, most = chance.uniform(40, 400), chance.turn([4, 6, 16])
    speed_ups = {most: chance.uniform(2, 2.3), 2: chance.uniform(0.6, 0.95), most // 2: chance.uniform(2.5, 2.9)}
    if chance.turn([False, True]):
        speed_ups = {most: chance.uniform(3, 4), 2: chance.uniform(1.2, 1.7), most // 2: chance.uniform(1.8, 2)}
    throughputs = [(workers, single * one) for workers, one in speed_ups.items()]
    throughputs.insert(chance.turn([3, 2, 1]), (1, single))
    return {"throughputs": dict(throughputs)}


def _table(chance):
    """Return a scaling table, and an efficiency between those of its rows. In turns:

    - all rows are efficient enough, although the throughput falls twice, below that of one worker
    - three rows that are too inefficient come before a row that is not
    - a row has exactly this efficiency
    - a row is efficient enough, but not relative to the best row, and both are above 1
    - a row has this efficiency only after rounding, and the most workers are slower than one
    - only one worker is efficient enough
    """
    few = chance.randint(3, 4)
    workers = (1, 2, few, 2 * few - chance.randint(0, 1), chance.randint(12, 16))
    high, low = chance.uniform(0.8, 0.85), chance.uniform(0.3, 0.5)
    efficiencies = [1, chance.uniform(0.9, 0.99), chance.uniform(0.7, 0.74), high, low]
    special = [
        {3: 0.33, 4: 0.055},
        {1: 0.65, 3: low, 4: high},
        {3: 0.75},
        {1: 1.25, 3: 1.05},
        {3: 0.78 - chance.uniform(1e-4, 4e-4), 4: 0.04},
        {3: 0.75},
    ]
    for row, efficiency in chance.turn(special).items():
        efficiencies[row] = efficiency
    single = 4.0 * chance.randint(10, 99)  # so that 0.75 times as much has few digits, too
    table = [[count, single * count * one, count * one, one] for count, one in zip(workers, efficiencies)]
    return {"table": table, "least": chance.turn([0.05, 0.78, 0.75, 0.9, 0.78, 0.995])}


def _scaling(
    throughputs, speed_up=lambda rate, single: rate / single, efficiency=lambda speed_up, workers: speed_up / workers
):
    rows = []
    for workers, rate in sorted(throughputs.items()):
        times = speed_up(rate, throughputs[1])
        rows.append([workers, rate, times, efficiency(times, workers)])
    return rows


def _last_of_unbroken(table, least):
    """Return the workers of the row before the first row that is too inefficient."""
    return [row[0] for number, row in enumerate(table) if all(before[3] >= least for before in table[: number + 1])][-1]


def _allreduce(parameters, workers, megabits):
    return 8 * 4 * parameters * 2 * (workers - 1) / workers / (megabits * 1e6)


ANSWERS = {
    "intra_rank": Function(
        _rank,
        lambda rank, per_node: rank % per_node,
        {
            "`intra_rank` returns the inter_rank, the number of the node": lambda rank, per_node: rank // per_node,
            "`intra_rank` returns the rank itself: on each node, intra_ranks start at 0": lambda rank, per_node: rank,
            "`intra_rank` counts from 1: intra_ranks start at 0": lambda rank, per_node: rank % per_node + 1,
            "`intra_rank` counts down: the first rank of a node has the intra_rank 0": lambda rank, per_node: (
                per_node - 1 - rank % per_node
            ),
            (
                "`intra_rank` subtracts the ranks of one node only: subtract those of all earlier nodes"
            ): lambda rank, per_node: rank - per_node if rank >= per_node else rank,
        },
    ),
    "total_accuracy": Function(
        lambda chance: _parts(chance, chance.turn([2, 3, 4, 5, 3, 2])),
        lambda correct, images: sum(correct) / sum(images),
        {
            (
                "`total_accuracy` averages the ranks' accuracies, so a rank with few images weighs as much as one with"
                " many"
            ): (lambda correct, images: sum(one / of for one, of in zip(correct, images)) / len(images)),
            "`total_accuracy` returns rank 0's accuracy: include the other ranks": lambda correct, images: (
                correct[0] / images[0]
            ),
            "`total_accuracy` returns percent: return a number from 0 to 1": lambda correct, images: (
                100 * sum(correct) / sum(images)
            ),
            (
                "`total_accuracy` returns the number of correct images: divide it by the number of all images"
            ): lambda correct, images: sum(correct),
            "`total_accuracy` adds up the ranks' accuracies: add up images, then divide": lambda correct, images: sum(
                one / of for one, of in zip(correct, images)
            ),
            "`total_accuracy` returns the error rate: return the share that is correct": lambda correct, images: (
                1 - sum(correct) / sum(images)
            ),
        },
    ),
    "scaling": Function(
        _throughputs,
        _scaling,
        {
            "the efficiencies in `scaling` repeat the speed-ups: divide them by the workers": lambda throughputs: (
                _scaling(throughputs, efficiency=lambda times, _: times)
            ),
            "the speed-ups in `scaling` are upside down": lambda throughputs: _scaling(
                throughputs, lambda rate, single: single / rate
            ),
            "the efficiencies in `scaling` are in percent, but the best efficiency is 1": lambda throughputs: _scaling(
                throughputs, efficiency=lambda times, of: 100 * times / of
            ),
            "the rows of `scaling` are sorted by throughput: sort them by the number of workers": lambda throughputs: (
                sorted(_scaling(throughputs), key=lambda row: row[1])
            ),
            (
                "the speed-ups in `scaling` are relative to the smallest throughput: divide by that of 1 worker,"
                " `throughputs[1]`"
            ): lambda throughputs: _scaling(throughputs, lambda rate, single: rate / min(throughputs.values())),
            (
                "the speed-ups in `scaling` are relative to the first throughput of the dictionary: divide by that of"
                " 1 worker, `throughputs[1]`"
            ): lambda throughputs: _scaling(throughputs, lambda rate, single: rate / next(iter(throughputs.values()))),
            "the rows of `scaling` are not sorted by the number of workers": lambda throughputs: [
                row for workers in throughputs for row in _scaling(throughputs) if row[0] == workers
            ],
        },
    ),
    "most_workers": Function(
        lambda chance: _table(chance),
        lambda table, least: max(row[0] for row in table if row[3] >= least),
        {
            (
                "`most_workers` returns the largest number of workers in the table, whatever its efficiency"
            ): lambda table, least: max(row[0] for row in table),
            "`most_workers` returns the smallest number of workers that is efficient enough": lambda table, least: min(
                row[0] for row in table if row[3] >= least
            ),
            (
                "`most_workers` takes the row with the best efficiency, but more workers may still be efficient enough"
            ): lambda table, least: max(table, key=lambda row: row[3])[0],
            (
                "`most_workers` takes the row with the highest throughput, but more workers may still be"
                " efficient enough"
            ): (lambda table, least: max((row for row in table if row[3] >= least), key=lambda row: row[1])[0]),
            (
                "`most_workers` returns an efficiency: return the number of workers, the first entry of the row"
            ): lambda table, least: max(row for row in table if row[3] >= least)[3],
            (
                "`most_workers` returns a speed-up: return the number of workers, the first entry of the row"
            ): lambda table, least: max(row for row in table if row[3] >= least)[2],
            "`most_workers` returns a whole row: return its first entry, the number of workers": lambda table, least: (
                max(row for row in table if row[3] >= least)
            ),
            (
                "`most_workers` compares the speed-up with `least`: the efficiency is in the last column"
            ): lambda table, least: max(row[0] for row in table if row[2] >= least),
            'an efficiency of exactly `least` is enough, too: "at least" means >=': lambda table, least: max(
                [row[0] for row in table if row[3] > least], default=0
            ),
            (
                "`most_workers` stops at the first row that is not efficient enough, but a later row may be"
            ): _last_of_unbroken,
        },
    ),
    "allreduce_seconds": Function(
        lambda chance: {
            # half of the calls have so few images that rounding a part shows
            "parameters": 2 * chance.randint(5000, chance.turn([45_000, 45_000_000])) + 1,
            "workers": chance.turn([2, 4, 3, 16, 8, chance.randint(5, 9)]),
            "megabits": chance.turn([20, 100, 1000, 10_000]),
        },
        _allreduce,
        {
            "`allreduce_seconds` counts bytes as bits: a byte has 8 bits": lambda parameters, workers, megabits: (
                _allreduce(parameters, workers, megabits) / 8
            ),
            (
                "`allreduce_seconds` is twice as long as it should be: a float32 has 4 bytes, not 8, and a rank sends"
                " and receives at the same time"
            ): (lambda parameters, workers, megabits: 2 * _allreduce(parameters, workers, megabits)),
            (
                "`allreduce_seconds` counts one byte for each gradient: a float32 has 4 bytes"
            ): lambda parameters, workers, megabits: _allreduce(parameters, workers, megabits) / 4,
            (
                "`allreduce_seconds` sends the gradients once, but in a ring each rank sends 2 (N - 1) / N times"
                " their size (does `//` round the factor to 1?)"
            ): lambda parameters, workers, megabits: 32 * parameters / megabits / 1e6,
            "`allreduce_seconds` lacks the factor 2: first the partial sums go around the ring, then the results": (
                lambda parameters, workers, megabits: _allreduce(parameters, workers, megabits) / 2
            ),
            (
                "`allreduce_seconds` sends all gradients to every other rank, but in a ring each rank sends (N - 1) / N"
                " of the gradients twice"
            ): (lambda parameters, workers, megabits: _allreduce(parameters, workers, megabits) * workers),
            (
                "`allreduce_seconds` counts 1,048,576 bits per megabit: here, mega is 1,000,000"
            ): lambda parameters, workers, megabits: _allreduce(parameters, workers, megabits) / 1.048576,
            (
                "`allreduce_seconds` counts one bit per megabit: a megabit is a million bits"
            ): lambda parameters, workers, megabits: 1e6 * _allreduce(parameters, workers, megabits),
            "`allreduce_seconds` returns milliseconds: return seconds": lambda parameters, workers, megabits: (
                1000 * _allreduce(parameters, workers, megabits)
            ),
        },
    ),
}
