"""Checks of the Chainer track's scripts that several units share: what a gap must do, in public cases."""

from grader.checks import criteria, sgd, training
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

PROBES, ORACLES = "grader.probes.chainer", "grader.oracles.chainer"


def every_image_in_batches(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        for which, one in enumerate(of_rank["first"]):
            part, batches = of_rank["parts"][which], one["batches"]
            who = f"iterator {which}" if len(of_rank["parts"]) > 1 else "it" if len(seen) == 1 else f"on rank {rank} it"
            used = [sample for batch in batches for sample in batch]
            if one["ended"] and len(used) <= len(part):
                return f"{who} ends after one epoch; the trainer stops by itself, so a training iterator repeats"
            if other := [len(batch) for batch in batches if len(batch) != case["batchsize"]]:
                return f"{who} gives batches of {other[0]} images; args.batchsize is {case['batchsize']}, for each worker"
            if extra := sorted(set(used) - set(part)):
                return f"{who} runs over images of other parts too ({criteria.some(extra)}): each iterator gets a part of its own"
            for epoch in of_rank["orders"][which]:
                if sorted(epoch) != sorted(part):
                    return f"an epoch of {who} does not contain each of its {len(part)} images once"
    return None


def order_follows_seed(seen, case, expected):
    for of_rank in seen:
        first, again, other = ([one["batches"] for one in of_rank[run]] for run in ("first", "again", "other"))
        if of_rank["parts"] != of_rank["parts again"]:
            return "two runs with the same args.seed split the data set differently: a run that is resumed would go on with other parts"
        if first != again:
            return "two runs with the same args.seed see the images in different orders: Shuffle(args.seed) as order_sampler prevents that"
        if first == other:
            return "another args.seed gives the same order of images: it must follow from args.seed"
        resumed = [one["batches"] for one in of_rank["resumed"]]
        if resumed != [batches[len(batches) - len(rest) :] for batches, rest in zip(first, resumed)]:
            return "a run that is resumed from a snapshot goes on with another order: Shuffle(args.seed) as order_sampler prevents that"
    return None


def converted(seen, case, expected):
    if any("size" in of_rank["asked"] for of_rank in seen):
        return "the images are enlarged to another size than args.size: `convert` enlarges them to that"
    calls = min(len(of_rank["asked"]) for of_rank in seen)
    if not calls:
        return "`convert` is never called: without it images are not enlarged"
    return None if calls >= case["updates"] else f"`convert` is called {calls} times in {case['updates']} updates; every batch goes through it"


def converted_for_device(seen, case, expected):
    if any("none" in of_rank["asked"] for of_rank in seen):
        return "`convert` is not told the device: batches stay in the memory of the CPU while the model is on a GPU"
    return converted(seen, case, expected)


IN_BATCHES = "SerialIterator(data set, batch size): it goes through the data again and again, in batches of equal size."


def in_order(needed):
    """The criteria on the order of the images, which need another one."""
    new = training.new_order_every_epoch("the order must be drawn anew for each")
    return (
        Criterion("a new order every epoch", 1, new, "order_sampler=Shuffle(args.seed) draws each epoch's order.", needed),
        Criterion(
            "the order follows from the seed", 1, order_follows_seed, "What is drawn at random must follow from args.seed, in resumed runs too.", needed
        ),
    )


def passes(form):
    """The form of what the probe of iterators observes. form(one): of `one` for each part."""
    of_pass, orders = {"batches": [[int]], "ended": bool}, ([int],) * 3
    fields = {"parts": [int], "parts again": [int], "orders": orders} | dict.fromkeys(("first", "again", "other", "resumed"), of_pass)
    return {name: form(of_field) for name, of_field in fields.items()}


def iterator(*cases):
    once = Criterion("every image once an epoch, in batches", 1, every_image_in_batches, IN_BATCHES)
    return Check("iterator", f"{PROBES}:iterators", cases, (once, *in_order(once.title)), observed=lambda case: passes(lambda form: (form,)))


def optimizer(criteria, *cases):
    form = lambda case: {"parameters": Array((case["updates"] + (2 if "workers" in case else 1), None))}
    return Check("optimizer", f"{PROBES}:optimizer", cases, criteria, oracle=f"{ORACLES}:optimizer", observed=form)


def updater(criteria, *cases):
    form = lambda case: {"parameters": Array((case["updates"], None)), "asked": [str], "gpu": [int], "training": bool}
    return Check("updater", f"{PROBES}:updater", cases, criteria, oracle=f"{ORACLES}:updater", observed=form)


MOMENTUM_SGD = Criterion(
    "momentum SGD with the rate asked for",
    1,
    sgd.updates("Chainer"),
    "chainer.optimizers.MomentumSGD(rate, momentum=...); its setup(model) gives it what to update.",
)
UPDATE = Criterion("the update of each batch", 1, training.one_big_batch, "StandardUpdater(iterator, optimizer, ...)")
CONVERTED = Criterion("batches are converted for the device", 1, converted_for_device, "StandardUpdater's arguments: converter, device.", UPDATE.title)


def throughput(*cases):
    """The check of `images` and `throughput`. All batches are full, so that counting batches is right as well."""
    all_images = "images of all workers and epochs"
    return Check(
        "throughput",
        f"{PROBES}:throughput",
        cases,
        (
            Criterion(all_images, 1, training.images_of_all, "What goes through the network in an epoch, times the epochs of this run."),
            Criterion("images per second", 1, training.images_a_second, "Throughput is images divided by seconds.", all_images),
        ),
        given=training.seconds,
        observed=lambda case: training.THROUGHPUT,
    )


def run(task, **case):
    """The check of a whole script. Each step takes all images, because the result must not depend on their order."""
    end = "the parameters of our own run"
    return Check(
        "run",
        f"{PROBES}:run",
        ({"task": task, "images": 24, "lr": 0.05} | case,),
        (
            Criterion("rank 0 alone reports the throughput", 1, training.rank_0_reports, "Printing and saving are the duties of rank 0.", end),
            Criterion("result.json tells what was run", 1, training.result_of_run, "What is counted at the end goes into result.json.", end),
            Criterion(end, 1, training.same_end, "If all gaps pass, look at the lines between them."),
        ),
        oracle=f"{ORACLES}:run",
        whole=True,
        observed=lambda case: training.RUN,
    )
