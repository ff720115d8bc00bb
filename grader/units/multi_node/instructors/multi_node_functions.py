"""The answers to the gaps in notebook 03_multi_node: inputs, what is right, and typical mistakes."""

from grader.instructors.notebook_answers import Function


def _rank(chance):
    """A rank: the last one of the first node, the first one of a later node, or one between. No node has a power of two
    of them, for which the last bits of the rank would be right. So many jobs are possible that a list of their answers
    is no answer."""
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
    """How many images each rank has, and how many of them are correct: none of a rank's in one call. In another one,
    two ranks have equally many images; in a third, equally many of them are correct; in a fourth, both."""
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
    """Workers -> images/s, not in order: one worker is never the first, and the last in two calls; 16 come after 8, but
    as a text before. In half of the calls more workers are slower: two are slower than one, and the most are slower
    than half of them."""
    single, most = chance.uniform(40, 400), chance.turn([4, 6, 16])
    speed_ups = {most: chance.uniform(2, 2.3), 2: chance.uniform(0.6, 0.95), most // 2: chance.uniform(2.5, 2.9)}
    if chance.turn([False, True]):
        speed_ups = {most: chance.uniform(3, 4), 2: chance.uniform(1.2, 1.7), most // 2: chance.uniform(1.8, 2)}
    throughputs = [(workers, single * one) for workers, one in speed_ups.items()]
    throughputs.insert(chance.turn([3, 2, 1]), (1, single))
    return {"throughputs": dict(throughputs)}


def _table(chance):
    """A scaling table, and an efficiency between those of its rows. In turns, all rows are efficient enough, though
    throughput falls twice, below that of one worker; three rows that are too inefficient come before one that is not; a
    row has exactly that efficiency; a row is efficient enough, though not against the best one, and both are above 1; a
    row has that efficiency only if it is rounded, and the most workers are slower than one; only one worker is
    efficient enough."""
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
    """The workers of the row before the first row that is too inefficient."""
    return [row[0] for number, row in enumerate(table) if all(before[3] >= least for before in table[: number + 1])][-1]


def _allreduce(parameters, workers, megabits):
    return 8 * 4 * parameters * 2 * (workers - 1) / workers / (megabits * 1e6)


ANSWERS = {
    "intra_rank": Function(
        _rank,
        lambda rank, per_node: rank % per_node,
        {
            "that is the inter_rank, the number of the node": lambda rank, per_node: rank // per_node,
            "that is the rank itself; on each node, the intra_ranks begin at 0": lambda rank, per_node: rank,
            "intra_ranks begin at 0, not at 1": lambda rank, per_node: rank % per_node + 1,
            "intra_ranks are counted up, from 0 for the first rank of a node": lambda rank, per_node: (
                per_node - 1 - rank % per_node
            ),
            (
                "a rank of a later node has the ranks of all nodes before it to take off, not of one"
            ): lambda rank, per_node: rank - per_node if rank >= per_node else rank,
        },
    ),
    "total_accuracy": Function(
        lambda chance: _parts(chance, chance.turn([2, 3, 4, 5, 3, 2])),
        lambda correct, images: sum(correct) / sum(images),
        {
            "that is the mean of the ranks' accuracies: a rank with few images then weighs as much as one with many": (
                lambda correct, images: sum(one / of for one, of in zip(correct, images)) / len(images)
            ),
            "that is rank 0's accuracy": lambda correct, images: correct[0] / images[0],
            "that is in percent; the accuracy is a part of 1": lambda correct, images: 100 * sum(correct) / sum(images),
            "that is the number of correct images; divide it by the number of all images": lambda correct, images: sum(
                correct
            ),
            "that adds the ranks' accuracies": lambda correct, images: sum(
                one / of for one, of in zip(correct, images)
            ),
            "that is the error; the accuracy is the part that is correct": lambda correct, images: (
                1 - sum(correct) / sum(images)
            ),
        },
    ),
    "scaling": Function(
        _throughputs,
        _scaling,
        {
            "the efficiencies are the speed-ups again: divide by the workers": lambda throughputs: _scaling(
                throughputs, efficiency=lambda times, _: times
            ),
            "the speed-ups are upside down": lambda throughputs: _scaling(
                throughputs, lambda rate, single: single / rate
            ),
            "the efficiencies are in percent; 1 is the best": lambda throughputs: _scaling(
                throughputs, efficiency=lambda times, of: 100 * times / of
            ),
            "the rows are sorted by throughput; sort them by the number of workers": lambda throughputs: sorted(
                _scaling(throughputs), key=lambda row: row[1]
            ),
            (
                "the speed-ups are against the smallest throughput; they should be against that of 1 worker,"
                " `throughputs[1]`"
            ): lambda throughputs: _scaling(throughputs, lambda rate, single: rate / min(throughputs.values())),
            (
                "the speed-ups are against the first throughput of the dictionary; take that of 1 worker,"
                " `throughputs[1]`"
            ): lambda throughputs: _scaling(throughputs, lambda rate, single: rate / next(iter(throughputs.values()))),
            "the rows are not in the order of the workers": lambda throughputs: [
                row for workers in throughputs for row in _scaling(throughputs) if row[0] == workers
            ],
        },
    ),
    "most_workers": Function(
        lambda chance: _table(chance),
        lambda table, least: max(row[0] for row in table if row[3] >= least),
        {
            "that is the largest number of workers in the table, efficient or not": lambda table, least: max(
                row[0] for row in table
            ),
            "that is the smallest number of workers that is efficient enough": lambda table, least: min(
                row[0] for row in table if row[3] >= least
            ),
            "that is the row with the best efficiency; with more workers it may still be enough": lambda table, least: (
                max(table, key=lambda row: row[3])[0]
            ),
            "that is the row with the highest throughput; with more workers the efficiency may still be enough": (
                lambda table, least: max((row for row in table if row[3] >= least), key=lambda row: row[1])[0]
            ),
            "that is the efficiency; return the number of workers, which comes first in its row": lambda table, least: (
                max(row for row in table if row[3] >= least)[3]
            ),
            "that is the speed-up; return the number of workers, which comes first in its row": lambda table, least: (
                max(row for row in table if row[3] >= least)[2]
            ),
            "that is the whole row; return its number of workers, which comes first": lambda table, least: max(
                row for row in table if row[3] >= least
            ),
            "the speed-up is compared with `least`; the efficiency is in the last column": lambda table, least: max(
                row[0] for row in table if row[2] >= least
            ),
            "an efficiency of exactly `least` is enough, too: at least means >=": lambda table, least: max(
                [row[0] for row in table if row[3] > least], default=0
            ),
            "it stops at the first row that is too inefficient; a later one may be efficient enough": _last_of_unbroken,
        },
    ),
    "allreduce_seconds": Function(
        lambda chance: {
            # in half of the calls so few that rounding a part is seen
            "parameters": 2 * chance.randint(5000, chance.turn([45_000, 45_000_000])) + 1,
            "workers": chance.turn([2, 4, 3, 16, 8, chance.randint(5, 9)]),
            "megabits": chance.turn([20, 100, 1000, 10_000]),
        },
        _allreduce,
        {
            "bytes are taken for bits: a byte has 8": lambda parameters, workers, megabits: (
                _allreduce(parameters, workers, megabits) / 8
            ),
            "that is twice as much: a float32 has 4 bytes, not 8, and a rank receives while it sends": (
                lambda parameters, workers, megabits: 2 * _allreduce(parameters, workers, megabits)
            ),
            "each gradient is counted as one byte; it has 4": lambda parameters, workers, megabits: (
                _allreduce(parameters, workers, megabits) / 4
            ),
            (
                "the gradients are sent once (does `//` make 1 of the factor?); in a ring each rank sends 2 (N - 1)"
                " / N times their size"
            ): lambda parameters, workers, megabits: 32 * parameters / megabits / 1e6,
            "the factor 2 is missing: sums go round the ring, and then the results": (
                lambda parameters, workers, megabits: _allreduce(parameters, workers, megabits) / 2
            ),
            "each rank sends (N - 1) / N of the gradients twice, not all of them to each of the others": (
                lambda parameters, workers, megabits: _allreduce(parameters, workers, megabits) * workers
            ),
            "mega is 1,000,000 here, not 1,048,576": lambda parameters, workers, megabits: (
                _allreduce(parameters, workers, megabits) / 1.048576
            ),
            "a megabit is a million bits": lambda parameters, workers, megabits: (
                1e6 * _allreduce(parameters, workers, megabits)
            ),
            "those are milliseconds; seconds were asked for": lambda parameters, workers, megabits: (
                1000 * _allreduce(parameters, workers, megabits)
            ),
        },
    ),
}
