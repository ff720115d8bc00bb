"""Checks of the PyTorch track's scripts that several units share: what a gap must do, in public cases."""

import itertools

import numpy

from grader.checks import criteria, sgd, training
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

PROBES, ORACLES = "grader.probes.pytorch_scripts", "grader.oracles.pytorch_oracles"


def new_order_every_epoch(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        part = of_rank["part"]
        if any(sorted(order) != part for order in of_rank["orders"]):
            return f"{_who(rank, seen)}an epoch does not contain each of the {len(part)} images of the shard once"
    new = training.new_order_every_epoch("the sampler is not told which epoch it is, or always the same")
    if problem := new(
        [{"parts": [of_rank["part"]], "orders": [of_rank["orders"]]} for of_rank in seen], case, expected
    ):
        return problem
    if "ranks" in case and (problem := _batches_of_all(seen, expected["totals"])):
        return problem
    if alike := [rank for rank, of_rank in enumerate(seen) if of_rank["other"] == of_rank["orders"][-1]]:
        return (
            f"{_who(alike[0], seen)}another args.seed gives the images in the same order: `batches` has args.seed"
            " already, so leave its seed as it is"
        )
    return None


def _batches_of_all(seen, totals):
    """None, or a sentence where the ranks' batches have other numbers of images than the step divides by."""
    for of_ranks in zip(*(of_rank["sizes"] for of_rank in seen)):
        if (found := [sum(of_step) for of_step in itertools.zip_longest(*of_ranks, fillvalue=0)]) != totals:
            return (
                f"in the steps of an epoch the ranks have {criteria.first_few(found)} images, and `batches.totals`, by"
                f" which a step divides, is {criteria.first_few(totals)}: `train_loader` must take its batches from"
                " `batches`"
            )
    return None


def order_follows_epoch(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        for epoch, (of_resumed, of_whole) in enumerate(zip(of_rank["resumed"], of_rank["orders"][2:]), start=2):
            if of_resumed != of_whole:
                return (
                    f"{_who(rank, seen)}in epoch {epoch} a run begins with images {_begin(of_whole)}; the same run,"
                    f" resumed at epoch 2, with {_begin(of_resumed)}: the order must follow from args.seed and `epoch`"
                    " alone, not from what this run has done before"
                )
    return None


def _who(rank, seen):
    return f"on rank {rank} " if len(seen) > 1 else ""


def _begin(order):
    return ", ".join(map(str, order[:3]))


def partition(seen, case, expected):
    return criteria.partition([of_rank["samples"] for of_rank in seen], case["images"])


def balanced(seen, case, expected):
    return criteria.balanced([of_rank["samples"] for of_rank in seen])


def at_random(seen, case, expected):
    samples, again, other = ([of_rank[run] for of_rank in seen] for run in ("samples", "again", "other"))
    if problem := criteria.dealt_at_random(samples, other):
        return problem
    if samples != again:
        return "two runs with the same args.seed cut the data set differently: the order must follow from it"
    return (
        "another args.seed cuts the data set in the same way: the order must follow from it"
        if samples == other
        else None
    )


def lengths_of_all(seen, case, expected):
    right = [len(of_rank["samples"]) for of_rank in seen]
    for rank, of_rank in enumerate(seen):
        if of_rank["lengths"] != right:
            return f"on rank {rank} `lengths` is {of_rank['lengths']}; the ranks have {right} images"
    return None


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


def ranks_stay_equal(seen, case, expected):
    return training.ranks_stay_equal(seen, case, expected, criteria.SINGLE)


def step_as_one_batch(seen, case, expected):
    steps = -(-max(case["lengths"]) // case["batchsize"])
    for rank, (of_rank, length) in enumerate(zip(seen, case["lengths"])):
        own = [len(numbers) for numbers in numpy.array_split(range(length), steps)] * case["epochs"]
        for images, passes in zip(own, of_rank["passes"], strict=True):
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
    problem = training.one_big_batch(seen, case, expected, criteria.SINGLE, lambda step: _factors(case, step))
    if problem and ": " not in problem:  # no misconception explains it
        return criteria.with_reason(problem, _reported(seen, expected, steps=1, tolerance=criteria.SINGLE / 10) or "")
    return problem or _reported(seen, expected)


def _factors(case, step):
    """What training.one_big_batch takes: mistakes with `total`, the number of images of all ranks in a step."""
    ranks, steps = len(case["lengths"]), -(-max(case["lengths"]) // case["batchsize"])
    totals = numpy.sum(
        [[len(part) for part in numpy.array_split(range(length), steps)] for length in case["lengths"]], axis=0
    )
    total = totals[step % steps]
    found = {
        "`total // comm.size` drops the remainder, so that the step goes too far: use `/`": (
            total / ranks / (total // ranks)
        ),
        "the number of images of an epoch's first step is used in every step: use `total`": total / totals[0],
        "the number of images of an epoch's last step is used in every step: use `total`": total / totals[-1],
    }
    return {sentence: factor for sentence, factor in found.items() if factor != 1}


def _reported(seen, expected, steps=None, tolerance=criteria.SINGLE):
    """None, or a sentence on `loss` or `outputs` of one of the first `steps`, which the script reports after each."""
    for number, (loss, classes) in enumerate(zip(expected["losses"][:steps], expected["classes"])):
        found = numpy.mean([of_rank["losses"][number] for of_rank in seen])
        if not criteria.close(found, loss, tolerance):
            mean = "the mean of the ranks' `loss`" if len(seen) > 1 else "`loss`"
            right = (
                "the mean cross-entropy of the network's scores, over the images of all ranks,"
                if len(seen) > 1
                else "the mean cross-entropy of the network's scores"
            )
            shown, of_oracle = criteria.distinct_digits(found, loss)
            return f"in step {number + 1} {mean} is {shown}; {right} is {of_oracle}"
        for rank, (of_rank, right) in enumerate(zip(seen, classes)):
            if of_rank["classes"][number] != right:
                return (
                    f"{_who(rank, seen)}in step {number + 1} `outputs` are not the network's scores of the batch, from"
                    " which the script computes the accuracy"
                )
    return None


ON_ITS_NODE = "comm.intra_rank is this rank's number on its node; args.gpu is a list of ids."
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
    Criterion(
        "order_from_epoch",
        "the order follows from the epoch",
        1,
        order_follows_epoch,
        "set_epoch takes the number of the epoch that begins.",
        "new_order_every_epoch",
    ),
)


def device_of_rank(*cases):
    criteria = (Criterion("gpu_of_rank", "a GPU for each rank of a node", 1, training.right_gpu, ON_ITS_NODE),)
    return Check("device", f"{PROBES}:device", cases, criteria, observed=lambda case: {"gpu": object})


def shuffle(*cases):
    form = {"part": [int], "orders": ([int],) * 4, "sizes": ([int],) * 4, "resumed": ([int],) * 2, "other": [int]}
    return Check(
        "shuffle", f"{PROBES}:shuffle", cases, ORDER_CRITERIA, oracle=f"{ORACLES}:shuffle", observed=lambda case: form
    )


def _steps(case):
    steps = -(-max(case["lengths"]) // case["batchsize"]) * case["epochs"]
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
    ({"lengths": [11], "batchsize": 4, "epochs": 2, "lr": 0.1},),
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
        "Forward must go through `replica`, which averages the gradients.",
        "one_big_batch",
    ),
    Criterion(
        "one_big_batch",
        BIG_BATCH,
        2,
        step_as_one_batch,
        "Gradients are averaged over the ranks, each with the same weight: the mean of the ranks' `loss` must be the"
        " mean over all `total` images, also where ranks have different numbers of them.",
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
        "mean_gradients", MEAN, 1, mean_gradients, "DistributedDataParallel(model) averages them during backward."
    ),
)
ON_ONE_RANK = "every image on exactly one rank"
SPLIT_CRITERIA = (
    Criterion(
        "every_image_on_one_rank", ON_ONE_RANK, 1, partition, "All ranks must cut in the same way: from the same seed."
    ),
    Criterion(
        "balanced",
        "no shard larger than it has to be",
        1,
        balanced,
        "Deal the remainder out, an image to a rank.",
        "every_image_on_one_rank",
    ),
    Criterion(
        "at_random",
        "at random",
        1,
        at_random,
        "The data set may be sorted: shuffle before cutting, by args.seed.",
        "every_image_on_one_rank",
    ),
    Criterion(
        "lengths_of_all",
        "`lengths` of all shards",
        1,
        lengths_of_all,
        "A list with the number of images of every rank, the same on all ranks.",
        "every_image_on_one_rank",
    ),
)
ALL_IMAGES = "images of all ranks and epochs"
THROUGHPUT_CRITERIA = (
    Criterion(
        "images_counted",
        ALL_IMAGES,
        1,
        training.images_of_all,
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


def split(gap, *cases):
    return Check(
        gap,
        f"{PROBES}:split",
        cases,
        SPLIT_CRITERIA,
        observed=lambda case: {"samples": [int], "lengths": [int], "again": [int], "other": [int]},
    )


def run(task, *cases):
    """The check of a whole script. A step takes all images of an epoch, because the result must not depend on their
    order. With several ranks all images are equal, because it must not depend on which rank gets which image either."""
    end = "same_parameters_as_our_run"
    return Check(
        "run",
        f"{PROBES}:run",
        tuple({"task": task, "images": 25, "epochs": 2, "batchsize": 25} | case for case in cases),
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
