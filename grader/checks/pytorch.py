"""The checks of the PyTorch track's scripts: for each task, what every gap must do, in public cases."""

import re

import numpy

from grader.checks import criteria
from grader.checks.check import Check, Criterion

PROBES, ORACLES = "grader.probes.pytorch", "grader.checks.oracles"


def right_gpu(seen, case, expected):
    chosen, gpu = seen[0]["gpu"], case["gpu"]
    if chosen == [gpu[worker % len(gpu)] for worker in range(case["workers"])]:
        return None
    if case["workers"] == 1:
        return f"with args.gpu = {gpu}, GPU {chosen[0]} is used, not the first of them"
    if len(set(chosen)) == 1:
        return f"all {case['workers']} ranks use GPU {chosen[0]}; each rank of a node needs one of its own"
    if chosen == [worker % len(gpu) for worker in range(case["workers"])]:
        return f"the ranks use GPUs {chosen}: intra_rank is a place in args.gpu ({gpu}), not the GPU's id"
    return f"with args.gpu = {gpu}, ranks 0 to {case['workers'] - 1} use GPUs {chosen}"


def updates_as_sgd(seen, case, expected):
    found = seen[0]["parameters"]

    def trace(lr, momentum, nesterov=False):
        parameters, velocity = [found[0]], 0
        for gradient in expected["gradients"]:
            velocity = momentum * velocity + gradient
            parameters.append(parameters[-1] - lr * (gradient + momentum * velocity if nesterov else velocity))
        return numpy.stack(parameters)

    wrong = {
        "the parameters do not change: does the optimizer have those of `model`?": trace(0, 0),
        "it updates without momentum": trace(case["lr"], 0),
        "the learning rate is not args.lr (PyTorch's default, 0.001, is used)": trace(0.001, 0.9),
        "the learning rate is not args.lr but 0.1": trace(0.1, 0.9),
        "the learning rate is not args.lr but 0.01": trace(0.01, 0.9),
        "it uses Nesterov's momentum; the lecture's is the plain one": trace(case["lr"], 0.9, nesterov=True),
    }
    right = trace(case["lr"], 0.9)
    problem = criteria.explained(found, right, wrong)
    if problem is None:
        return None
    moved, should = (numpy.abs(values[-1] - found[0]).max() for values in (found, right))
    return (
        f"{problem or 'the updates are not those of SGD with momentum'}: three updates move parameters by up to {moved:.2g}; with learning rate "
        f"{case['lr']} and momentum 0.9 by up to {should:.2g}"
    )


def new_order_every_epoch(seen, case, expected):
    epochs, length = [tuple(order) for order in seen[0]["epochs"]], case["lengths"][case["rank"]]
    if any(sorted(order) != list(range(length)) for order in epochs):
        return f"an epoch does not contain each of the {length} images of the shard once"
    if len(set(epochs)) == 1:
        first = ", ".join(map(str, epochs[0][:3]))
        return f"every epoch has the same order (images {first}, ...): the sampler is not told which epoch it is, or always the same"
    return None if len(set(epochs)) == len(epochs) else "some epochs have the same order as others"


def order_follows_epoch(seen, case, expected):
    whole, resumed = list(seen[0]["epochs"][2]), list(seen[0]["resumed"])
    if whole == resumed:
        return None
    return (
        f"in epoch 2 a run begins with images {', '.join(map(str, whole[:3]))}; the same run, resumed at epoch 2, with "
        f"{', '.join(map(str, resumed[:3]))}: the number that is set must be `epoch`"
    )


def one_step(seen, case, expected):
    found = seen[0]["parameters"]
    problem = criteria.explained_by(found, expected)
    if problem is None:
        return None
    step = next(step for step in range(case["steps"]) if not criteria.close(found[step], expected["right"][step]))
    difference = numpy.abs(found[step] - expected["right"][step]).max()
    images = f"{sum(case['lengths'])} images" + f" (of the ranks: {', '.join(map(str, case['lengths']))})" * (len(seen) > 1)
    differ = f"after step {step} parameters differ by up to {difference:.2g} from those of one process with a batch of all {images}"
    return criteria.because(differ, problem)


def ranks_stay_equal(seen, case, expected):
    for step in range(case["steps"]):
        if problem := criteria.equal_on_all_ranks([of_rank["parameters"][step] for of_rank in seen], f"after step {step} parameters"):
            return f"{problem} (does each rank update with its own gradients only?)"
    return None


def images_of_all(seen, case, expected):
    epochs, lengths = case["epoch"] - case["first_epoch"], case["lengths"]
    right = sum(lengths) * epochs
    for rank, (images, _) in enumerate(seen[0]["found"]):
        wrong = {
            f"`images` is one epoch's; this run made {epochs}": sum(lengths),
            "`images` has only this rank's: count those of all ranks": lengths[rank] * epochs,
            "`images` has only this rank's, in one epoch: count those of all ranks and all epochs": lengths[rank],
            "a run resumed at first_epoch makes only the epochs that are left": sum(lengths) * case["epoch"],
            "`images` counts rank 0's shard for every rank; shards differ": lengths[0] * len(lengths) * epochs,
            "the images of all ranks are counted once for every rank": right * len(lengths),
            "steps are counted as full batches of args.batchsize images, but some are smaller: count the images": -(
                -max(lengths) // case["batchsize"] * case["batchsize"] * len(lengths) * epochs
            ),
        }
        if problem := criteria.images_counted(images, right, wrong, f"rank {rank} has "):
            return problem
    return None


def images_a_second(seen, case, expected):
    for rank, (images, throughput) in enumerate(seen[0]["found"]):
        if not criteria.close(throughput, images / case["seconds"]):
            wrong = {
                "these are seconds per image, not images per second": case["seconds"] / images if images else 0,
                "it is multiplied by the number of ranks, but `images` has those of all ranks": images / case["seconds"] * len(case["lengths"]),
                "it is divided by the number of ranks; the course's throughput is that of all together": images / case["seconds"] / len(case["lengths"]),
            }
            how = criteria.explained(throughput, images / case["seconds"], wrong) or "it should be images / seconds"
            return f"rank {rank} has throughput = {throughput:.4g} for {images:g} images in {case['seconds']} seconds: {how}"
    return None


def partition(seen, case, expected):
    return criteria.partition([of_rank["samples"] for of_rank in seen], case["images"])


def balanced(seen, case, expected):
    return criteria.balanced([of_rank["samples"] for of_rank in seen])


def at_random(seen, case, expected):
    return criteria.at_random([of_rank["samples"] for of_rank in seen])


def lengths_of_all(seen, case, expected):
    right = [len(of_rank["samples"]) for of_rank in seen]
    for rank, of_rank in enumerate(seen):
        if of_rank["lengths"] != right:
            return f"on rank {rank} `lengths` is {of_rank['lengths']}; the ranks have {right} images"
    return None


def equal_start(seen, case, expected):
    problem = criteria.equal_on_all_ranks([of_rank["start"] for of_rank in seen], "at the start parameters")
    if problem:
        return f"{problem}; the wrapper must send rank 0's to the others"
    return None if criteria.close(seen[0]["start"], expected["start"]) else "the parameters at the start are not those of rank 0's model"


def mean_gradients(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        wrong = {
            "after backward each rank has its own gradients: nothing averages them": expected["own"][rank],
            "the gradients are summed over the ranks, not averaged": expected["sum"],
        }
        problem = criteria.explained(of_rank["gradients"], expected["mean"], wrong if len(seen) > 1 else {})
        if problem is not None:
            found, right = (numpy.abs(values).max() for values in (of_rank["gradients"], expected["mean"]))
            problem = problem or "the gradients are not the mean of all ranks' gradients"
            return f"{problem} (on rank {rank} the largest is {found:.3g}; of the mean it is {right:.3g})"
    return None


def evaluates_all(seen, case, expected):
    found = seen[0]["found"]
    problem = criteria.explained_by(found, expected)
    if problem is None:
        return None
    numbers = "loss {:.4g} and accuracy {:.4g}".format
    parts = ", ".join(map(str, case["lengths"]))
    right = f"rank 0 finds {numbers(*found)}, but the {sum(case['lengths'])} test images (of the ranks: {parts}) have {numbers(*expected['right'])}"
    return criteria.because(right, problem)


def trains_on(seen, case, expected):
    if evaluating := [rank for rank, of_rank in enumerate(seen) if not of_rank["training"]]:
        return f"after the evaluation the model of {criteria.ranks(evaluating)} is still in evaluation mode: `model.train()` must follow"
    if moved := [rank for rank, of_rank in enumerate(seen) if of_rank["moved"]]:
        return f"the evaluation has changed the running statistics of batch normalisation on {criteria.ranks(moved)}: test images must not"
    return None


def rank_0_reports(seen, case, expected):
    counts = [len(of_rank["lines"]) for of_rank in seen]
    if counts != [1] + [0] * (len(seen) - 1):
        printed = ", ".join(f"rank {rank} printed {count}" for rank, count in enumerate(counts))
        return f"there should be one line `Throughput: ...`, and rank 0 prints it; {printed}"
    if writers := [rank for rank, of_rank in enumerate(seen) if of_rank["result"] and rank > 0]:
        return f"{criteria.ranks(writers)} wrote a result.json, too; only rank 0 does"
    numbers = [float(number) for number in re.findall(r"[-+.\deE]*\d", seen[0]["lines"][0])]
    if len(numbers) != 3 or not criteria.close(numbers[0], numbers[1] / numbers[2], 1e-6):
        return f"`{seen[0]['lines'][0]}` should be: Throughput: <images a second> [images/sec.] (<images> / <seconds>)"
    result = seen[0]["result"]
    if result and not criteria.close(numbers[1:], [result["images"], result["seconds"]]):
        return f"the line tells of {numbers[1]:g} images in {numbers[2]:g} s, and result.json of {result['images']} in {result['seconds']:g} s"
    return None


def result_of_run(seen, case, expected):
    result = seen[0]["result"]
    if not result:
        return f"rank 0 left no result.json that can be read: {seen[0]['problem'] or 'none was written'}"
    right = {"images": case["images"] * case["epochs"], "epochs": case["epochs"], "workers": case.get("workers", len(seen)), "unit": case["task"]}
    for name, value in right.items():
        if result[name] != value:
            return f"result.json has {name} {result[name]}, but in this run it was {value}"
    if len(result["log"]) != case["epochs"] or any(epoch.get("validation/main/loss") is None for epoch in result["log"]):
        return f"the log in result.json should have losses, also of validation, for each of {case['epochs']} epochs; it has {result['log']}"
    return None


def same_end(seen, case, expected):
    if problem := criteria.equal_on_all_ranks([of_rank["parameters"] for of_rank in seen], "at the end parameters"):
        return problem
    found, right = seen[0]["parameters"], expected["parameters"]
    if criteria.close(found, right, 1e-3):
        return None
    return (
        f"after {case['epochs']} epochs of {case['images']} images parameters differ by up to {numpy.abs(found - right).max():.2g} from those of "
        "our own run: see which gap is wrong; if none is, compare the lines between the gaps with those given out"
    )


DEVICE = Check(
    "device",
    f"{PROBES}:device",
    ({"workers": 1, "gpu": [0]}, {"workers": 1, "gpu": [1]}),
    (Criterion("the GPU asked for", 1, right_gpu, "devices.use(id) chooses a GPU; args.gpu is a list of ids."),),
)
DEVICE_OF_RANK = Check(
    "device",
    f"{PROBES}:device",
    ({"workers": 2, "gpu": [0, 1]}, {"workers": 2, "gpu": [1, 0]}, {"workers": 4, "gpu": [1, 0]}),
    (Criterion("a GPU for each rank of a node", 1, right_gpu, "comm.intra_rank is this rank's number on its node; args.gpu is a list of ids."),),
)
OPTIMIZER = Check(
    "optimizer",
    f"{PROBES}:optimizer",
    ({"lr": 0.037},),
    (Criterion("SGD with momentum and the rate asked for", 1, updates_as_sgd, "torch.optim.SGD(parameters, lr=..., momentum=...)"),),
    oracle=f"{ORACLES}:gradients",
)
SHUFFLE = Check(
    "shuffle",
    f"{PROBES}:shuffle",
    ({"lengths": [23], "rank": 0, "batchsize": 5}, {"lengths": [12, 11], "rank": 1, "batchsize": 4}),
    (
        Criterion("a new order every epoch", 1, new_order_every_epoch, "A sampler's set_epoch chooses the order of its next pass."),
        Criterion("the order follows from the epoch", 1, order_follows_epoch, "set_epoch wants the number of the epoch that begins."),
    ),
)
STEP = Check(
    "step",
    f"{PROBES}:step",
    ({"lengths": [6], "steps": 3, "lr": 0.1},),
    (Criterion("the update of one step", 3, one_step, "Four lines: zero_grad, forward and loss, backward, step."),),
    oracle=f"{ORACLES}:step",
)
STEP_OF_RANKS = Check(
    "step",
    f"{PROBES}:step",
    ({"ranks": 2, "lengths": [4, 3], "steps": 2, "lr": 0.1, "distributed": True},),
    (
        Criterion("equal parameters on all ranks", 1, ranks_stay_equal, "Forward must go through `replica`, which averages the gradients."),
        Criterion(
            "the update of one big batch",
            2,
            one_step,
            "Gradients are averaged over the ranks, each with the same weight: the mean of the ranks' `loss` must be the mean over all `total` "
            "images, also where ranks have different numbers of them.",
        ),
    ),
    oracle=f"{ORACLES}:step",
)
REPLICA = Check(
    "replica",
    f"{PROBES}:replica",
    ({"ranks": 2, "lengths": [4, 3]},),
    (
        Criterion("all ranks start from rank 0's parameters", 1, equal_start, "DistributedDataParallel(model) sends them when it is made."),
        Criterion("backward gives the mean gradients", 1, mean_gradients, "DistributedDataParallel(model) averages them during backward."),
    ),
    oracle=f"{ORACLES}:replica",
)
SPLIT_CRITERIA = (
    Criterion("every image on exactly one rank", 1, partition, "All ranks must cut in the same way: from the same seed."),
    Criterion("shards of equal size but for one image", 1, balanced, "Deal the remainder out, an image to a rank."),
    Criterion("at random", 1, at_random, "The data set may be sorted: shuffle before cutting."),
    Criterion("`lengths` of all shards", 1, lengths_of_all, "A list with the number of images of every rank, the same on all ranks."),
)
SPLIT = Check("split", f"{PROBES}:split", ({"ranks": 3, "images": 44},), SPLIT_CRITERIA)
SCATTER = Check("scatter", f"{PROBES}:split", ({"ranks": 4, "images": 42, "dealt": True},), SPLIT_CRITERIA)
THROUGHPUT_CRITERIA = (
    Criterion("images of all ranks and epochs", 1, images_of_all, "What went through the network: all images, times the epochs of this run."),
    Criterion("images per second", 1, images_a_second, "Throughput is images divided by seconds."),
)
THROUGHPUT = Check(
    "throughput",
    f"{PROBES}:throughput",
    (
        {"lengths": [50], "epoch": 4, "first_epoch": 0, "seconds": 12.5, "batchsize": 32},
        {"lengths": [50], "epoch": 4, "first_epoch": 1, "seconds": 8.0, "batchsize": 32},
    ),
    THROUGHPUT_CRITERIA,
)
THROUGHPUT_OF_RANKS = Check(
    "throughput",
    f"{PROBES}:throughput",
    (
        {"lengths": [26, 25], "epoch": 4, "first_epoch": 0, "seconds": 12.5, "batchsize": 8},
        {"lengths": [13, 13, 13, 12], "epoch": 4, "first_epoch": 1, "seconds": 8.0, "batchsize": 8},
    ),
    THROUGHPUT_CRITERIA,
)

EVALUATOR = Check(
    "evaluator",
    f"{PROBES}:evaluator",
    ({"ranks": 3, "lengths": [8, 5, 2], "batchsize": 3},),
    (
        Criterion("loss and accuracy of the whole test set", 2, evaluates_all, "extensions.Evaluator has an option for parts on all ranks."),
        Criterion("training goes on as before", 1, trains_on, "Evaluation must leave the model in training mode, and its statistics alone."),
    ),
    oracle=f"{ORACLES}:evaluator",
)


def run(task, *cases):
    """The check of a whole script. On a single GPU batches are cut and shuffled; else a step has all images, which are the same,
    for what comes out must not depend on who gets which."""
    return Check(
        "run",
        f"{PROBES}:run",
        tuple({"task": task, "images": 25, "epochs": 2, "batchsize": 9} | case for case in cases),
        (
            Criterion("rank 0 alone reports the throughput", 1, rank_0_reports, "Printing and saving are the duties of rank 0."),
            Criterion("result.json tells what was run", 1, result_of_run, "What is counted at the end goes into result.json."),
            Criterion("the parameters of our own run, on all ranks", 1, same_end, "If all gaps pass, look at the lines between them."),
        ),
        oracle=f"{ORACLES}:run",
        whole=True,
    )


SINGLE_GPU = (DEVICE, OPTIMIZER, SHUFFLE, STEP, THROUGHPUT, run("single_gpu", {}))
MULTI_GPU = (DEVICE_OF_RANK, SPLIT, REPLICA, SHUFFLE, STEP_OF_RANKS, THROUGHPUT_OF_RANKS, run("multi_gpu", {"ranks": 2, "batchsize": 13}))
MULTI_NODE = (
    DEVICE_OF_RANK,
    SCATTER,
    REPLICA,
    EVALUATOR,
    SHUFFLE,
    STEP_OF_RANKS,
    THROUGHPUT_OF_RANKS,
    run("multi_node", {"ranks": 4, "ranks_per_node": 2, "batchsize": 7}),
)
