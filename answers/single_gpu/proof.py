"""How its known answers are proved right or wrong: see answers.proofs."""

from answers.proofs import Case

EXPECTED = {"prediction_backward": (0.5, 10)}
CASES = {"pytorch": Case("2", 22, 8), "chainer": Case("2", 22, 8)}


def throughput(chance):
    """The times are those of a clock that counts hundredths of a second, so that steps often take equally long."""
    seconds = [max(0.01, round(chance.lognormvariate(-2, 0.5), 2)) for _ in range(chance.randint(1, 30))]
    return {"batchsize": chance.choice((1, 8, 32, 100, 256)), "step_seconds": seconds}


def smallest_batch(chance):
    """In some, a rate is exactly the share of the best one, or just below it, and neither need be a whole number."""
    sizes = chance.sample(range(1, 513), chance.randint(2, 8))
    best, share = 16 * chance.randint(10, 60) + chance.choice((0, 0.5)), chance.choice((0.5, 0.75, 0.875))
    rates = {size: chance.choice((chance.uniform(0.2, 1) * best, share * best, share * best - 0.125)) for size in sizes}
    rates[chance.choice(sizes)] = float(best)
    return {"rates": rates} if chance.random() < 0.3 else {"rates": rates, "share": share}


def limit(chance):
    """The clock counts tenths of a second, so that parts often take equally long."""
    seconds = {
        part: max(0.1, round(chance.lognormvariate(0, 1), 1))
        for part in ("load", "enlarge", "forward", "backward", "optimize", "evaluate")
    }
    return {"seconds": seconds, "part": chance.choice(list(seconds))}


INPUTS = {"throughput": throughput, "smallest_batch": smallest_batch, "limit": limit}
