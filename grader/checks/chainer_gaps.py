"""Checks of the Chainer track's scripts that several units share: the requirements on a gap, in public cases."""

import numpy

from grader.checks import criteria, sgd, training
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

PROBES, ORACLES = "grader.probes.chainer_scripts", "grader.oracles.chainer_oracles"


def every_image_in_batches(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        for which, one in enumerate(of_rank["first"]):
            part, batches = of_rank["parts"][which], one["batches"]
            who = (
                f"iterator {which}"
                if len(of_rank["parts"]) > 1
                else "`train_iterator`"
                if len(seen) == 1
                else f"`train_iterator` on rank {rank}"
            )
            used = [sample for batch in batches for sample in batch]
            if of_rank["begun"][which]:
                return (
                    f"{who} has already returned a batch in this gap, which the training then misses: leave `next` to"
                    " the updater, or call `reset()`"
                )
            if not used:
                return (
                    f"{who} returns no images: does it drop incomplete batches, or is it the same object as an"
                    " earlier iterator?"
                )
            if one["ended"] and len(used) <= len(part):
                return (
                    f"{who} ends after one epoch: a training iterator must repeat, since the trainer decides when to"
                    " stop"
                )
            if other := [len(batch) for batch in batches if len(batch) != case["batchsize"]]:
                return (
                    f"{who} returns batches of {other[0]} images, but args.batchsize is {case['batchsize']} per worker"
                )
            if extra := sorted(set(used) - set(part)):
                return (
                    f"{who} returns images of other parts, too ({criteria.first_few(extra)}): give each iterator its"
                    " own part"
                )
            for epoch in of_rank["orders"][which]:
                if sorted(epoch) != sorted(part):
                    return (
                        f"{who} has an epoch of {len(epoch)} images that does not contain each of the {len(part)}"
                        " images of its part exactly once"
                    )
    return None


def places(part, batches):
    """Return the index of each sample of an iterator's batches in its part."""
    of_samples = {sample: place for place, sample in enumerate(part)}
    return [of_samples.get(sample) for batch in batches for sample in batch]


def order_follows_seed(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        first, again, other = ([one["batches"] for one in of_rank[run]] for run in ("first", "again", "other"))
        if of_rank["parts"] != of_rank["parts again"]:
            return (
                "two runs with the same args.seed split the data set differently, so a resumed run would continue"
                " with other parts: derive the parts from args.seed"
            )
        if first != again:
            return (
                "two runs with the same args.seed use the images in different orders: pass Shuffle(args.seed) as"
                " order_sampler"
            )
        if len(of_rank["parts"]) > 1 and list(map(set, of_rank["parts"])) == list(map(set, of_rank["other parts"])):
            return "another args.seed splits the data set in the same way: derive the parts from args.seed"
        orders, other_orders = map(places, of_rank["parts"], first), map(places, of_rank["other parts"], other)
        if any(order and None not in order and order == its_other for order, its_other in zip(orders, other_orders)):
            return "another args.seed gives the same order of the images: derive the order from args.seed"
        resumed = [one["batches"] for one in of_rank["resumed"]]
        if resumed != [batches[len(batches) - len(rest) :] for batches, rest in zip(first, resumed)]:
            why = ", since this rank resumes from the snapshot of rank 0, and so with its seed" if rank else ""
            return f"a resumed run continues with another order{why}: pass Shuffle(args.seed) as order_sampler"
    return None


def converted(seen, case, expected):
    if any("size" in of_rank["asked"] for of_rank in seen):
        return "the images are enlarged to a size other than args.size, which `convert` uses"
    calls = min(len(of_rank["asked"]) for of_rank in seen)
    if not calls:
        return "`convert` is never called, so the images are not enlarged"
    return (
        None
        if calls >= case["updates"]
        else f"`convert` is called {calls} times in {case['updates']} updates, but every batch must go through it"
    )


def converted_for_device(seen, case, expected):
    if any("none" in of_rank["asked"] for of_rank in seen):
        return "`convert` gets no device, so the batches stay in CPU memory while the model is on a GPU"
    if any("cpu" in of_rank["asked"] for of_rank in seen):
        return "`convert` gets a device other than `device`, where the model is: -1, for example, is always the CPU"
    return converted(seen, case, expected)


def update_of_each_batch(seen, case, expected):
    """Judge like training.one_big_batch. Also, each update must be one forward pass, by `model`, which reports the loss
    and the accuracy."""
    if any(numpy.isnan(of_rank["parameters"]).any() for of_rank in seen):
        return (
            "the parameters become NaN, as gradients are NaN until they are cleared: call `model.cleargrads()` before"
            " `backward()`"
        )
    if problem := training.one_big_batch(seen, case, expected):
        return problem
    if more := [passes for of_rank in seen for passes in of_rank["passes"] if passes != 1]:
        return (
            f"the images go through the network {more[0]} times in an update, but they must do so once, since batch"
            " normalisation learns from each pass"
        )
    if not all({"main/loss", "main/accuracy"} <= set(of_rank["reported"]) for of_rank in seen):
        return (
            "the updates do not report main/loss and main/accuracy, which the table of epochs shows: compute the loss"
            " with `model`, which reports both"
        )
    return None


IN_BATCHES = "`SerialIterator(data set, batch size)` repeats the data in batches of equal size."


def in_order(needed):
    """Return the criteria on the order of the images. needed: the id of the criterion that they need."""
    new = training.new_order_every_epoch("draw a new order for each epoch")
    return (
        Criterion(
            "new_order_every_epoch",
            "every epoch has a new order",
            1,
            new,
            "`order_sampler=Shuffle(args.seed)` draws the order of each epoch.",
            needed,
        ),
        Criterion(
            "order_from_seed",
            "args.seed determines the order",
            1,
            order_follows_seed,
            "Everything random must follow from args.seed, in resumed runs, too.",
            needed,
        ),
    )


def passes(form):
    """Describe the observations that the iterators' probe must return. `form(one)` describes `one` for each part."""
    of_pass, orders = {"batches": [[int]], "ended": bool}, ([int],) * 3
    fields = (
        dict.fromkeys(("parts", "parts again", "other parts"), [int])
        | {"orders": orders, "begun": bool}
        | dict.fromkeys(("first", "again", "other", "resumed"), of_pass)
    )
    return {name: form(of_field) for name, of_field in fields.items()}


def iterator(*cases):
    once = Criterion(
        "every_image_once",
        ("`train_iterator` returns every image once per epoch, in batches"),
        1,
        every_image_in_batches,
        IN_BATCHES,
    )
    return Check(
        "iterator",
        f"{PROBES}:iterators",
        cases,
        (once, *in_order(once.id)),
        observed=lambda case: passes(lambda form: (form,)),
    )


def optimizer(criteria, *cases):
    form = lambda case: {"parameters": Array((case["updates"] + (2 if "workers" in case else 1), None))}
    return Check("optimizer", f"{PROBES}:optimizer", cases, criteria, oracle=f"{ORACLES}:optimizer", observed=form)


def updater(criteria, *cases):
    of_updates = {"passes": [int], "reported": [str]}
    form = lambda case: (
        {"parameters": Array((case["updates"], None)), "asked": [str], "gpu": [int], "training": bool} | of_updates
    )
    return Check("updater", f"{PROBES}:updater", cases, criteria, oracle=f"{ORACLES}:updater", observed=form)


MOMENTUM_SGD = Criterion(
    "momentum_sgd",
    "`optimizer` is momentum SGD with learning rate args.lr",
    1,
    sgd.updates("Chainer"),
    "`chainer.optimizers.MomentumSGD(rate, momentum=...)` creates it. Its `setup(model)` gives it the parameters.",
)
UPDATE = Criterion(
    "update_of_batch",
    ("`updater` makes one right update for each batch"),
    1,
    update_of_each_batch,
    "`StandardUpdater(iterator, optimizer, ...)`",
)
CONVERTED = Criterion(
    "batches_converted",
    "`convert` prepares every batch for `device`",
    1,
    converted_for_device,
    "`StandardUpdater` has the arguments `converter` and `device`.",
    "update_of_batch",
)


def images_of_all(seen, case, expected):
    """Judge like training.images_of_all. An iterator fills an epoch's last batch with images of the next epoch, so the
    number of steps of the whole run times their images is also right."""
    workers, epochs, batch = len(case["lengths"]), case["epochs"] - case["first_epoch"], case["batchsize"]
    steps = -(-max(case["lengths"]) * epochs // batch)
    return training.images_of_all(seen, case | {"steps": steps}, expected, also=steps * batch * workers)


def throughput(*cases):
    """Return the check of `images` and `throughput`."""
    return Check(
        "throughput",
        f"{PROBES}:throughput",
        cases,
        (
            Criterion(
                "images_counted",
                "`images` counts all workers and epochs",
                1,
                images_of_all,
                "Count the images that go through the network in an epoch, times the epochs of this run.",
            ),
            Criterion(
                "images_per_second",
                "`throughput` is images per second",
                1,
                training.images_a_second,
                "Throughput is images divided by seconds.",
                "images_counted",
            ),
        ),
        given=training.seconds,
        observed=lambda case: training.THROUGHPUT,
    )


def run(task, **case):
    """Return the check of a whole script. Each step takes all images, because the result must not depend on their
    order."""
    end = "same_parameters_as_our_run"
    return Check(
        "run",
        f"{PROBES}:run",
        ({"task": task, "images": 24, "lr": 0.05} | case,),
        (
            Criterion(
                "rank_0_reports",
                "only rank 0 reports the throughput",
                1,
                training.rank_0_reports,
                "Only rank 0 prints and saves.",
                end,
            ),
            Criterion(
                "result_json",
                "result.json describes the run",
                1,
                training.result_of_run,
                "The counts at the end of the script go into result.json.",
                end,
            ),
            Criterion(
                end,
                "the final parameters equal those of our own run",
                1,
                training.same_end,
                "If all gaps pass, compare the lines between them with the original file.",
            ),
        ),
        oracle=f"{ORACLES}:run",
        whole=True,
        observed=lambda case: training.RUN,
    )
