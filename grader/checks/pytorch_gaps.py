"""Checks of the PyTorch track's scripts that several units share: the requirements on a gap, in public cases."""

import numpy

from grader.checks import criteria, sgd, training
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

PROBES, ORACLES = "grader.probes.pytorch_scripts", "grader.oracles.pytorch_oracles"


def new_order_every_epoch(seen, case, expected):
    """Judge that each epoch takes each image of the data set once, over all ranks; some images twice if they cannot be
    divided evenly. The batches must have the requested size, and each epoch another order."""
    images, ranks = case["images"], len(seen)
    for epoch, orders in enumerate(zip(*(of_rank["orders"] for of_rank in seen))):
        taken = [number for order in orders for number in order]
        if missing := sorted(set(range(images)).difference(taken)):
            return (
                f"no rank uses image {missing[0]} in epoch {epoch}"
                if ranks > 1
                else f"image {missing[0]} is missing in epoch {epoch}"
            ) + (f" ({len(missing)} of {images} are missing)" if len(missing) > 1 else "")
        if len(taken) > -(-images // ranks) * ranks:
            return f"epoch {epoch} has {len(taken)} images, but the data set has {images}"
    for rank, of_rank in enumerate(seen):
        for sizes in of_rank["sizes"]:
            if any(size != case["batchsize"] for size in sizes[:-1]) or sizes[-1] > case["batchsize"]:
                return (
                    f"{_who(rank, seen)}an epoch has batches of {criteria.first_few(sizes)} images, but"
                    f" args.batchsize is {case['batchsize']}"
                )
    new = training.new_order_every_epoch(
        "pass the number of each epoch to the sampler (set_epoch)" if ranks > 1 else "shuffle=True draws a new one"
    )
    parts = [{"parts": [sorted(of_rank["orders"][0])], "orders": [of_rank["orders"]]} for of_rank in seen]
    return new(parts, case, expected)


def _who(rank, seen):
    return f"on rank {rank}, " if len(seen) > 1 else ""


def shared_out(seen, case, expected):
    """Judge that the ranks together have all images; some twice if they cannot be divided evenly."""
    images, ranks = case["images"], len(seen)
    taken = [number for of_rank in seen for number in of_rank["samples"]]
    if missing := sorted(set(range(images)).difference(taken)):
        if len(missing) == 1:
            return f"no rank uses image {missing[0]}: train on all images of the data set"
        return f"no rank uses image {missing[0]} and {len(missing) - 1} others: train on all images of the data set"
    if len(taken) > images + ranks - 1:
        twice = next(number for number in taken if taken.count(number) > 1)
        owners = [rank for rank, of_rank in enumerate(seen) if twice in of_rank["samples"]]
        return (
            f"image {twice} is on {criteria.ranks(owners)}: the ranks have {len(taken)} images in total, but the data"
            f" set has {images}"
        )
    return None


def equally_many(seen, case, expected):
    lengths = [len(of_rank["samples"]) for of_rank in seen]
    if len(set(lengths)) == 1:
        return None
    return (
        f"the ranks have {criteria.first_few(lengths)} images, so a rank with more images runs more steps and"
        " deadlocks in an all-reduce: DistributedSampler repeats some images, so that all ranks have equally many"
    )


def at_random(seen, case, expected):
    samples, again, other = ([of_rank[run] for of_rank in seen] for run in ("samples", "again", "other"))
    if problem := criteria.dealt_at_random(samples, other):
        return problem
    if samples != again:
        return "two runs with the same args.seed distribute the images differently: derive the order from args.seed"
    return (
        "another args.seed distributes the images in the same way: derive the order from args.seed"
        if samples == other
        else None
    )


def parameters_of_model(seen, case, expected):
    problem = criteria.equal_on_all_ranks([of_rank["start"] for of_rank in seen], "the parameters after your code")
    if problem:
        return problem
    if not criteria.close(seen[0]["start"], expected["start"], criteria.SINGLE):
        return "your code changes the parameters that the script has given to `model`"
    return (
        None
        if all(of_rank["training"] for of_rank in seen)
        else "your code puts `model` into evaluation mode, but the training needs training mode"
    )


def mean_gradients(seen, case, expected):
    if any(isinstance(of_rank["gradients"], str) for of_rank in seen):
        return "parameters of `model` have no gradients after backward: wrap `model` itself"
    if not all(of_rank["training"] for of_rank in seen):
        return "the model is in evaluation mode, in which its gradients differ: leave it in training mode"
    for rank, of_rank in enumerate(seen):
        wrong = {
            "each rank keeps its own gradients after backward: nothing averages them": expected["own"][rank],
            "the gradients are summed over the ranks, not averaged": expected["sum"],
            "each rank divides its own gradients by the number of ranks, but nothing adds them up": (
                expected["own"][rank] / len(seen)
            ),
        }
        if 1 < (nodes := len(seen) // (per_node := case.get("ranks_per_node", len(seen)))) < len(seen):
            wrong[("the gradients are averaged only over the ranks of each node")] = expected["own"][
                rank - rank % per_node :
            ][:per_node].mean(axis=0)
            wrong[("the gradients are summed over the ranks, but divided by the number of nodes")] = (
                expected["sum"] / nodes
            )
        problem = criteria.explained(
            of_rank["gradients"], expected["mean"], wrong if len(seen) > 1 else {}, criteria.SINGLE
        )
        if problem is not None:
            found, right = criteria.distinct_digits(
                *(numpy.abs(values).max() for values in (of_rank["gradients"], expected["mean"])), 3
            )
            if rank:
                problem = (
                    "rank 0 has the mean gradients, but the other ranks do not: `all_reduce` gives the result to"
                    " all ranks, `reduce` to one"
                )
            problem = problem or _beside_the_mean(of_rank["gradients"], expected["mean"], expected["own"][rank])
            return f"{problem} (on rank {rank} the largest gradient is {found}; in the mean it is {right})"
    return None


def _beside_the_mean(found, mean, own):
    """Return how a rank's gradients differ from the mean over the ranks. own: the rank's own."""
    if found.shape == mean.shape:
        averaged = numpy.isclose(found, mean, criteria.SINGLE, criteria.SINGLE)
        if averaged.any() and numpy.allclose(found[~averaged], own[~averaged], criteria.SINGLE, criteria.SINGLE):
            return (
                "the gradients of some parameters are averaged, but the others are the rank's own: average all of them"
            )
        if times := sgd.ratio(found.ravel(), mean.ravel(), 100 * criteria.SINGLE):
            return (
                f"the gradients are {criteria.distinct_digits(times, 1, 3)[0]} times the mean of all ranks' gradients"
            )
    return "the gradients are not the mean of all ranks' gradients"


def images_of_all(seen, case, expected):
    """Judge like training.images_of_all, but images that DistributedSampler repeats may also count."""
    ranks, images = len(case["lengths"]), sum(case["lengths"])
    return training.images_of_all(seen, case, expected, also=-(-images // ranks) * ranks * case["epochs"])


def ranks_stay_equal(seen, case, expected):
    return training.ranks_stay_equal(seen, case, expected, criteria.SINGLE)


def step_as_one_batch(seen, case, expected):
    for rank, (of_rank, images) in enumerate(zip(seen, case["lengths"])):
        for passes in of_rank["passes"]:
            through = sum(number for number, _ in passes)
            if not all(training for _, training in passes):
                return (
                    f"{_who(rank, seen)}the images go through the network in evaluation mode (`model.eval()`), but"
                    " training needs `model.train()`"
                )
            if through != images:
                once = (
                    (": compute `outputs` in one forward pass, and the loss from `outputs`") if through > images else ""
                )
                return (
                    f"{_who(rank, seen)}{through} images go through the network in one step, but the batch has"
                    f" {images}{once}"
                )
            if len(passes) > 1:
                return (
                    f"{_who(rank, seen)}a batch goes through the network in {len(passes)} parts, and batch"
                    " normalisation normalises each part separately: make one forward pass"
                )
    problem = training.one_big_batch(seen, case, expected, criteria.SINGLE)
    if problem and ": " not in problem:  # no misconception explains it
        return criteria.with_reason(problem, _returned(seen, expected, steps=1, tolerance=criteria.SINGLE / 10) or "")
    return problem or _returned(seen, expected)


def _returned(seen, expected, steps=None, tolerance=criteria.SINGLE):
    """Return None, or a sentence on `loss` or `outputs` of one of the first `steps`, which the script's table uses."""
    for number, (loss, classes) in enumerate(zip(expected["losses"][:steps], expected["classes"])):
        found = numpy.mean([of_rank["losses"][number] for of_rank in seen])
        if not criteria.close(found, loss, tolerance):
            mean = "the mean of the ranks' `loss`" if len(seen) > 1 else "`loss`"
            shown, of_oracle = criteria.distinct_digits(found, loss)
            return (
                f"{mean} is {shown} in step {number + 1}, but the mean cross-entropy of the network's scores is"
                f" {of_oracle}"
            )
        for rank, (of_rank, right) in enumerate(zip(seen, classes)):
            if of_rank["classes"][number] != right:
                return (
                    f"{_who(rank, seen)}`outputs` in step {number + 1} are not the network's scores of the batch, but"
                    " the script computes the accuracy from them"
                )
    return None


ON_ITS_NODE = "LOCAL_RANK is the rank's number on its node. args.gpu lists one GPU id for each."
DEVICE = Check(
    "device",
    f"{PROBES}:device",
    ({"gpu": [1]}, {"gpu": [2]}),
    (
        Criterion(
            "right_gpu",
            "`device` is the first GPU of args.gpu",
            1,
            training.right_gpu,
            "`devices.use(id)` chooses a GPU. args.gpu is a list of ids.",
        ),
    ),
    observed=lambda case: {"gpu": object},
)
ORDER_CRITERIA = (
    Criterion(
        "new_order_every_epoch",
        "every epoch has a new order",
        1,
        new_order_every_epoch,
        "A sampler's `set_epoch` sets the order of its next epoch.",
    ),
)
LOADER_CRITERIA = (
    Criterion(
        "new_order_every_epoch",
        "every epoch has all images, in a new order",
        2,
        new_order_every_epoch,
        "`DataLoader(data set, batch size, shuffle=True)`",
    ),
)


def device_of_rank(*cases):
    criteria = (
        Criterion("gpu_of_rank", ("`device` is the rank's own GPU on its node"), 1, training.right_gpu, ON_ITS_NODE),
    )
    return Check("device", f"{PROBES}:device", cases, criteria, observed=lambda case: {"gpu": object})


def _order(gap, cases, criteria, oracle):
    form = {"orders": ([int],) * 4, "sizes": ([int],) * 4}
    return Check(gap, f"{PROBES}:order", cases, criteria, oracle=oracle, observed=lambda case: form)


def loader(*cases):
    return _order("loader", cases, LOADER_CRITERIA, None)


def shuffle(*cases):
    return _order("shuffle", cases, ORDER_CRITERIA, f"{ORACLES}:order")


def _steps(case):
    steps = case["steps"]
    return {
        "parameters": Array((steps, None)),
        "losses": (float,) * steps,
        "passes": ([(int, bool)],) * steps,
        "classes": ([int],) * steps,
    }


def replica(*cases):
    form = {"start": Array((None,)), "training": bool, "gradients": object}
    return Check(
        "replica", f"{PROBES}:replica", cases, REPLICA_CRITERIA, oracle=f"{ORACLES}:replica", observed=lambda case: form
    )


def step_of_ranks(*cases):
    return Check("step", f"{PROBES}:step", cases, STEP_CRITERIA, oracle=f"{ORACLES}:step", observed=_steps)


STEP = Check(
    "step",
    f"{PROBES}:step",
    ({"lengths": [5], "steps": 4, "lr": 0.1},),
    (
        Criterion(
            "update_of_step",
            "a step makes the right update",
            3,
            step_as_one_batch,
            "A step has four parts: zero_grad, forward and loss, backward, step.",
        ),
    ),
    oracle=f"{ORACLES}:step",
    observed=_steps,
)
BIG_BATCH = "a step equals an update of one big batch"
STEP_CRITERIA = (
    Criterion(
        "equal_parameters",
        "the parameters stay equal on all ranks",
        1,
        ranks_stay_equal,
        "Call the `model` that the function gets: it averages the gradients.",
        "one_big_batch",
    ),
    Criterion(
        "one_big_batch",
        BIG_BATCH,
        3,
        step_as_one_batch,
        "Each rank's loss is the mean over its own images. DistributedDataParallel averages the ranks' gradients.",
    ),
)
MEAN = "backward averages the gradients over the ranks"
REPLICA_CRITERIA = (
    Criterion(
        "keeps_parameters",
        "`model` keeps its parameters",
        1,
        parameters_of_model,
        "`DistributedDataParallel(model)` wraps the model as it is.",
        "mean_gradients",
    ),
    Criterion(
        "mean_gradients", MEAN, 2, mean_gradients, "`DistributedDataParallel(model)` averages them during backward."
    ),
)
ON_ONE_RANK = "every image is on one rank"
SAMPLER_CRITERIA = (
    Criterion(
        "every_image_on_one_rank",
        ON_ONE_RANK,
        1,
        shared_out,
        "A DistributedSampler takes rank and size from the process group.",
    ),
    Criterion(
        "balanced",
        "all ranks have equally many images",
        1,
        equally_many,
        "All ranks must run the same number of steps.",
        "every_image_on_one_rank",
    ),
    Criterion(
        "at_random",
        "the images are distributed at random",
        1,
        at_random,
        "The data set may be sorted by class. Shuffle it with args.seed.",
        "every_image_on_one_rank",
    ),
)
ALL_IMAGES = "`images` counts all ranks and epochs"
THROUGHPUT_CRITERIA = (
    Criterion(
        "images_counted",
        ALL_IMAGES,
        1,
        images_of_all,
        "Count the images that went through the network, times the epochs of this run.",
    ),
    Criterion(
        "images_per_second",
        "`throughput` is images per second",
        1,
        training.images_a_second,
        "Throughput is images divided by seconds.",
        "images_counted",
    ),
)


def throughput(*cases):
    return Check(
        "throughput",
        f"{PROBES}:throughput",
        cases,
        THROUGHPUT_CRITERIA,
        given=training.seconds,
        observed=lambda case: training.THROUGHPUT,
    )


def sampler(*cases):
    form = {"samples": [int], "again": [int], "other": [int]}
    return Check("sampler", f"{PROBES}:sampler", cases, SAMPLER_CRITERIA, observed=lambda case: form)


def run(task, *cases):
    """Return the check of a whole script. A step takes all images of an epoch, because the result must not depend on
    their order. With several ranks all images are equal, because the result must not depend on their distribution."""
    end = "same_parameters_as_our_run"
    return Check(
        "run",
        f"{PROBES}:run",
        tuple({"task": task, "images": 24, "epochs": 2, "batchsize": 24} | case for case in cases),
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
                "the final parameters equal those of our own run, on all ranks",
                1,
                training.same_end,
                "If all gaps pass, compare the lines between them with the original file.",
            ),
        ),
        oracle=f"{ORACLES}:run",
        whole=True,
        observed=lambda case: training.RUN,
    )
