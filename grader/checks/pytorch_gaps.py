"""Checks of the PyTorch track's scripts that several units share: what a gap must do, in public cases."""

import numpy

from grader.checks import criteria, sgd, training
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

PROBES, ORACLES = "grader.probes.pytorch_scripts", "grader.oracles.pytorch_oracles"


def new_order_every_epoch(seen, case, expected):
    """A judge: each epoch takes each image of the data set once, with several ranks all ranks together; where these
    can't share the images out, some come twice. The batches are as large as asked for, and each epoch has an order of
    its own."""
    images, ranks = case["images"], len(seen)
    for epoch, orders in enumerate(zip(*(of_rank["orders"] for of_rank in seen))):
        taken = [number for order in orders for number in order]
        if missing := sorted(set(range(images)).difference(taken)):
            return (
                f"in epoch {epoch} no rank takes image {missing[0]}"
                if ranks > 1
                else f"epoch {epoch} does not have image {missing[0]}"
            ) + (f" (of {images}, {len(missing)} are missing)" if len(missing) > 1 else "")
        if len(taken) > -(-images // ranks) * ranks:
            return f"epoch {epoch} has {len(taken)} images, and the data set has {images}"
    for rank, of_rank in enumerate(seen):
        for sizes in of_rank["sizes"]:
            if any(size != case["batchsize"] for size in sizes[:-1]) or sizes[-1] > case["batchsize"]:
                return (
                    f"{_who(rank, seen)}an epoch has batches of {criteria.first_few(sizes)} images; args.batchsize is"
                    f" {case['batchsize']}"
                )
    new = training.new_order_every_epoch(
        "the sampler is not told which epoch it is, or always the same" if ranks > 1 else "shuffle=True changes it"
    )
    parts = [{"parts": [sorted(of_rank["orders"][0])], "orders": [of_rank["orders"]]} for of_rank in seen]
    return new(parts, case, expected)


def _who(rank, seen):
    return f"on rank {rank} " if len(seen) > 1 else ""


def shared_out(seen, case, expected):
    """A judge: the ranks together have all images; where these can't be shared out, some twice."""
    images, ranks = case["images"], len(seen)
    taken = [number for of_rank in seen for number in of_rank["samples"]]
    if missing := sorted(set(range(images)).difference(taken)):
        others = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        return f"no rank takes image {missing[0]}{others}: all images of the data set are to be trained on"
    if len(taken) > images + ranks - 1:
        twice = next(number for number in taken if taken.count(number) > 1)
        owners = [rank for rank, of_rank in enumerate(seen) if twice in of_rank["samples"]]
        return (
            f"image {twice} is on {criteria.ranks(owners)}: the ranks have {len(taken)} images in all, and the data set"
            f" has {images}"
        )
    return None


def equally_many(seen, case, expected):
    lengths = [len(of_rank["samples"]) for of_rank in seen]
    if len(set(lengths)) == 1:
        return None
    return (
        f"the ranks take {criteria.first_few(lengths)} images: one with more makes more steps, and waits in an"
        " all-reduce forever; DistributedSampler repeats some, so that all have equally many"
    )


def at_random(seen, case, expected):
    samples, again, other = ([of_rank[run] for of_rank in seen] for run in ("samples", "again", "other"))
    if problem := criteria.dealt_at_random(samples, other):
        return problem
    if samples != again:
        return "two runs with the same args.seed deal the images out differently: the order must follow from it"
    return (
        "another args.seed deals the images out in the same way: the order must follow from it"
        if samples == other
        else None
    )


def parameters_of_model(seen, case, expected):
    problem = criteria.equal_on_all_ranks([of_rank["start"] for of_rank in seen], "after your code parameters")
    if problem:
        return problem
    if not criteria.close(seen[0]["start"], expected["start"], criteria.SINGLE):
        return "your code changes the parameters that the script has given to `model`"
    return (
        None
        if all(of_rank["training"] for of_rank in seen)
        else "your code puts the model into evaluation mode: it is to be trained"
    )


def mean_gradients(seen, case, expected):
    if any(isinstance(of_rank["gradients"], str) for of_rank in seen):
        return "after backward, parameters of `model` have no gradients: the wrapper must hold `model` itself"
    if not all(of_rank["training"] for of_rank in seen):
        return "the model is in evaluation mode, in which its gradients are other ones"
    for rank, of_rank in enumerate(seen):
        wrong = {
            "after backward each rank has its own gradients: nothing averages them": expected["own"][rank],
            "the gradients are summed over the ranks, not averaged": expected["sum"],
            "each rank divides its own gradients by the number of ranks, and nothing adds them up": (
                expected["own"][rank] / len(seen)
            ),
        }
        if 1 < (nodes := len(seen) // (per_node := case.get("ranks_per_node", len(seen)))) < len(seen):
            wrong["the mean is taken over the ranks of each node alone"] = expected["own"][rank - rank % per_node :][
                :per_node
            ].mean(axis=0)
            wrong["the sum over the ranks is divided by the number of nodes, not of ranks"] = expected["sum"] / nodes
        problem = criteria.explained(
            of_rank["gradients"], expected["mean"], wrong if len(seen) > 1 else {}, criteria.SINGLE
        )
        if problem is not None:
            found, right = criteria.distinct_digits(
                *(numpy.abs(values).max() for values in (of_rank["gradients"], expected["mean"])), 3
            )
            if rank:
                problem = (
                    "rank 0 has the mean, but not every rank: `all_reduce` gives it to all of them, `reduce` to one"
                )
            problem = problem or _beside_the_mean(of_rank["gradients"], expected["mean"], expected["own"][rank])
            return f"{problem} (on rank {rank} the largest is {found}; of the mean it is {right})"
    return None


def _beside_the_mean(found, mean, own):
    """How a rank's gradients differ from the mean over the ranks. own: the rank's own."""
    if found.shape == mean.shape:
        averaged = numpy.isclose(found, mean, criteria.SINGLE, criteria.SINGLE)
        if averaged.any() and numpy.allclose(found[~averaged], own[~averaged], criteria.SINGLE, criteria.SINGLE):
            return (
                "the gradients of some parameters are the mean, those of the remaining ones the rank's own: all of them"
                " need it"
            )
        if times := sgd.ratio(found.ravel(), mean.ravel(), 100 * criteria.SINGLE):
            return (
                f"the gradients are {criteria.distinct_digits(times, 1, 3)[0]} times the mean of all ranks' gradients"
            )
    return "the gradients are not the mean of all ranks' gradients"


def images_of_all(seen, case, expected):
    """As training.images_of_all; the images that DistributedSampler repeats may count as well."""
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
                    f"{_who(rank, seen)}the images go through the network in evaluation mode (`model.eval()`); training"
                    " needs `model.train()`"
                )
            if through != images:
                once = ": one forward pass gives `outputs`, and these give the loss" if through > images else ""
                return (
                    f"{_who(rank, seen)}in one step {through} images go through the network, but the batch has"
                    f" {images}{once}"
                )
            if len(passes) > 1:
                return (
                    f"{_who(rank, seen)}a batch goes through the network in {len(passes)} parts, and batch"
                    " normalisation takes each by itself: make one forward pass"
                )
    problem = training.one_big_batch(seen, case, expected, criteria.SINGLE)
    if problem and ": " not in problem:  # no misconception explains it
        return criteria.with_reason(problem, _returned(seen, expected, steps=1, tolerance=criteria.SINGLE / 10) or "")
    return problem or _returned(seen, expected)


def _returned(seen, expected, steps=None, tolerance=criteria.SINGLE):
    """None, or a sentence on `loss` or `outputs` of one of the first `steps`, which the script's table tells of."""
    for number, (loss, classes) in enumerate(zip(expected["losses"][:steps], expected["classes"])):
        found = numpy.mean([of_rank["losses"][number] for of_rank in seen])
        if not criteria.close(found, loss, tolerance):
            mean = "the mean of the ranks' `loss`" if len(seen) > 1 else "`loss`"
            shown, of_oracle = criteria.distinct_digits(found, loss)
            return (
                f"in step {number + 1} {mean} is {shown}; the mean cross-entropy of the network's scores is {of_oracle}"
            )
        for rank, (of_rank, right) in enumerate(zip(seen, classes)):
            if of_rank["classes"][number] != right:
                return (
                    f"{_who(rank, seen)}in step {number + 1} `outputs` are not the network's scores of the batch, from"
                    " which the script computes the accuracy"
                )
    return None


ON_ITS_NODE = "LOCAL_RANK is a rank's number on its node; args.gpu is a list with an id for each."
DEVICE = Check(
    "device",
    f"{PROBES}:device",
    ({"gpu": [1]}, {"gpu": [2]}),
    (
        Criterion(
            "right_gpu",
            "the GPU asked for",
            1,
            training.right_gpu,
            "devices.use(id) chooses a GPU; args.gpu is a list of ids.",
        ),
    ),
    observed=lambda case: {"gpu": object},
)
ORDER_CRITERIA = (
    Criterion(
        "new_order_every_epoch",
        "a new order every epoch",
        1,
        new_order_every_epoch,
        "A sampler's set_epoch chooses the order of its next pass.",
    ),
)
LOADER_CRITERIA = (
    Criterion(
        "new_order_every_epoch",
        "all images, in a new order every epoch",
        2,
        new_order_every_epoch,
        "DataLoader(data set, batch size, shuffle=True)",
    ),
)


def device_of_rank(*cases):
    criteria = (Criterion("gpu_of_rank", "a GPU for each rank of a node", 1, training.right_gpu, ON_ITS_NODE),)
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
            "the update of one step",
            3,
            step_as_one_batch,
            "Four steps: zero_grad, forward and loss, backward, step.",
        ),
    ),
    oracle=f"{ORACLES}:step",
    observed=_steps,
)
BIG_BATCH = "the update of one big batch"
STEP_CRITERIA = (
    Criterion(
        "equal_parameters",
        "equal parameters on all ranks",
        1,
        ranks_stay_equal,
        "Forward must go through the `model` that the function gets, which averages the gradients.",
        "one_big_batch",
    ),
    Criterion(
        "one_big_batch",
        BIG_BATCH,
        3,
        step_as_one_batch,
        "Each rank's loss is the mean over its own images; DistributedDataParallel averages the ranks' gradients.",
    ),
)
MEAN = "backward gives the mean gradients"
REPLICA_CRITERIA = (
    Criterion(
        "keeps_parameters",
        "the model keeps its parameters",
        1,
        parameters_of_model,
        "DistributedDataParallel(model) holds the model as it is.",
        "mean_gradients",
    ),
    Criterion(
        "mean_gradients", MEAN, 2, mean_gradients, "DistributedDataParallel(model) averages them during backward."
    ),
)
ON_ONE_RANK = "every image on a rank"
SAMPLER_CRITERIA = (
    Criterion(
        "every_image_on_one_rank",
        ON_ONE_RANK,
        1,
        shared_out,
        "A DistributedSampler knows rank and size from the process group.",
    ),
    Criterion(
        "balanced",
        "equally many images on each rank",
        1,
        equally_many,
        "All ranks must make equally many steps.",
        "every_image_on_one_rank",
    ),
    Criterion(
        "at_random",
        "at random",
        1,
        at_random,
        "The data set may be sorted: shuffle it, by args.seed.",
        "every_image_on_one_rank",
    ),
)
ALL_IMAGES = "images of all ranks and epochs"
THROUGHPUT_CRITERIA = (
    Criterion(
        "images_counted",
        ALL_IMAGES,
        1,
        images_of_all,
        "What went through the network: all images, times the epochs of this run.",
    ),
    Criterion(
        "images_per_second",
        "images per second",
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
    """The check of a whole script. A step takes all images of an epoch, because the result must not depend on their
    order. With several ranks all images are equal, because it must not depend on which rank gets which image either."""
    end = "same_parameters_as_our_run"
    return Check(
        "run",
        f"{PROBES}:run",
        tuple({"task": task, "images": 24, "epochs": 2, "batchsize": 24} | case for case in cases),
        (
            Criterion(
                "rank_0_reports",
                "rank 0 alone reports the throughput",
                1,
                training.rank_0_reports,
                "Printing and saving are the duties of rank 0.",
                end,
            ),
            Criterion(
                "result_json",
                "result.json tells what was run",
                1,
                training.result_of_run,
                "What is counted at the end goes into result.json.",
                end,
            ),
            Criterion(
                end,
                "the parameters of our own run, on all ranks",
                1,
                training.same_end,
                "If all gaps pass, look at the lines between them.",
            ),
        ),
        oracle=f"{ORACLES}:run",
        whole=True,
        observed=lambda case: training.RUN,
    )
