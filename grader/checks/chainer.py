"""The checks of the Chainer track's scripts: for each task, what every gap must do, in public cases."""

import numpy

from grader.checks import judges, pytorch
from grader.checks.check import Check, Criterion

PROBES, ORACLES = "grader.probes.chainer", "grader.checks.oracles_chainer"


def main_first(seen, case, expected):
    names, ids, gpu = seen[0]["names"], seen[0]["ids"], case["gpu"]
    if "main" not in names:
        return f"no device is called 'main' ({', '.join(names) or 'there is none'}): the one that updates the parameters must be"
    found = ids[names.index("main")]
    return None if found == gpu[0] else f"with args.gpu = {gpu}, 'main' is GPU {found}, not the first of them"


def all_gpus(seen, case, expected):
    ids, gpu = seen[0]["ids"], case["gpu"]
    if sorted(ids) == sorted(gpu):
        return None
    if len(set(ids)) < len(ids):
        return f"with args.gpu = {gpu}, the devices have the ids {ids}: each needs one of its own"
    if len(ids) == len(gpu):
        return f"with args.gpu = {gpu}, the devices have the ids {ids}: args.gpu has the ids"
    return f"args.gpu names {len(gpu)} GPUs ({gpu}), but there are {len(ids)} devices ({ids})"


def every_image_in_batches(seen, case, expected):
    for which, one in enumerate(seen[0]["first"]):
        part, batches = seen[0]["parts"][which], one["batches"]
        who = f"iterator {which}" if "devices" in case else "it"
        used = [sample for batch in batches for sample in batch]
        if one["ended"] and len(used) <= len(part):
            return f"{who} ends after one epoch; the trainer stops by itself, so a training iterator repeats"
        if other := [len(batch) for batch in batches if len(batch) != case["batchsize"]]:
            return f"{who} gives batches of {other[0]} images; args.batchsize is {case['batchsize']}, for each worker"
        if extra := sorted(set(used) - set(part)):
            return f"{who} runs over images of other parts too ({judges.some(extra)}): each iterator gets a part of its own"
        for epoch in _epochs(one, part):
            if sorted(epoch) != sorted(part):
                return f"an epoch of {who} does not contain each of its {len(part)} images once"
    return None


def iterator_for_each_part(seen, case, expected):
    iterators, parts = len(seen[0]["first"]), len(seen[0]["parts"])
    if iterators != parts:
        return f"there are {iterators} iterators and {parts} parts: each device needs an iterator over a part of its own"
    return every_image_in_batches(seen, case, expected)


def new_order_every_epoch(seen, case, expected):
    for one, part in zip(seen[0]["first"], seen[0]["parts"]):
        epochs = _epochs(one, part)
        if all(epoch == part for epoch in epochs):
            return "in every epoch images come in the order of the data set: nothing shuffles them"
        if epochs.count(epochs[0]) == len(epochs) > 1:
            return "every epoch has the same batches in the same order: the order must be drawn anew for each"
        if len(set(map(tuple, epochs))) < len(epochs):
            return "some epochs have the same order as others"
    return None


def order_follows_seed(seen, case, expected):
    first, again, other = ([one["batches"] for one in seen[0][run]] for run in ("first", "again", "other"))
    if seen[0]["parts"] != seen[0]["parts again"]:
        return "two runs with the same args.seed split the data set differently: a run that is resumed would go on with other parts"
    if first != again:
        return "two runs with the same args.seed see the images in different orders: Shuffle(args.seed) as order_sampler prevents that"
    if first == other:
        return "another args.seed gives the same order of images: it must follow from args.seed"
    resumed = [one["batches"] for one in seen[0]["resumed"]]
    if resumed != [batches[len(batches) - len(rest) :] for batches, rest in zip(first, resumed)]:
        return "a run that is resumed from a snapshot goes on with another order: Shuffle(args.seed) as order_sampler prevents that"
    return None


def _epochs(one, part):
    """The orders of the three epochs of an iterator, which may cut batches at their ends or go on."""
    used = [sample for batch in one["batches"] for sample in batch]
    return [used[begin : begin + len(part)] for begin in range(0, 3 * len(part), len(part))]


def part_for_each_gpu(seen, case, expected):
    parts, devices, images = seen[0]["parts"], case["devices"], case["images"]
    if len(parts) != devices:
        return f"there are {len(parts)} parts for {devices} GPUs"
    if devices > 1 and all(sorted(part) == sorted(parts[0]) for part in parts):
        return f"all {devices} parts have the same {len(parts[0])} images: each GPU must see other ones"
    lengths, used = [len(part) for part in parts], [sample for part in parts for sample in part]
    if len(set(lengths)) > 1:
        return f"the parts have {', '.join(map(str, lengths))} images: all devices must make the same number of steps"
    if len(set(used)) < len(used):
        return f"{len(used) - len(set(used))} images are in more than one part"
    if images - len(used) >= devices:
        return f"{images - len(used)} of {images} images are in no part; less than one for each GPU may be left over"
    return None


def parts_at_random(seen, case, expected):
    return _at_random(seen[0]["parts"])


def _at_random(parts):
    """None, or how the images were put into the parts, in whatever order each part has them."""
    if len(parts) > 1 and all(max(part) - min(part) < len(part) for part in parts):
        return f"each part is a stretch of the data set (0 to {max(parts[0])}): if that is sorted by class, each worker sees other classes"
    return judges.at_random(parts) if len(parts) > 1 else None


def one_big_batch(seen, case, expected):
    found = numpy.stack([of_rank["parameters"] for of_rank in seen])
    wrong = {sentence: values for sentence, values in expected.items() if sentence != "right"}
    problem = judges.explained(found, expected["right"], wrong)
    if problem == "":
        if judges.close(found, numpy.broadcast_to(found[:, :1], found.shape)):
            return "the parameters never change"
        update = next(number for number in range(case["updates"]) if not judges.close(found[:, number], expected["right"][:, number]))
        difference = numpy.abs(found[:, update] - expected["right"][:, update]).max()
        return (
            f"after update {update + 1} parameters differ by up to {difference:.2g} from those of momentum SGD "
            f"(rate {case['lr']}, momentum 0.9) in one process with all workers' images in one batch"
        )
    return problem


def ranks_stay_equal(seen, case, expected):
    for update in range(case["updates"]):
        values = [of_rank["parameters"][update] for of_rank in seen]
        if problem := judges.equal_on_all_ranks(values, f"after update {update + 1} parameters"):
            return problem
    return None


def converted(seen, case, expected):
    return None if seen[0]["asked"] else "`convert` is never called: without it images are not enlarged"


def converted_for_device(seen, case, expected):
    if "none" in seen[0]["asked"]:
        return "`convert` is not told the device: batches stay in the memory of the CPU while the model is on a GPU"
    return converted(seen, case, expected)


def training_parts(seen, case, expected):
    parts, images = [of_rank["train"] for of_rank in seen], case["images"]
    lengths = [len(part) for part in parts]
    if len(parts) > 1 and all(sorted(part) == sorted(parts[0]) for part in parts):
        return f"all {len(parts)} ranks have the same {lengths[0]} images: each must get a part of its own"
    if missing := sorted(set(range(images)) - {sample for part in parts for sample in part}):
        return f"{len(missing)} of {images} training images are on no rank ({judges.some(missing)})"
    if len(set(lengths)) > 1:
        return (
            f"the ranks have {', '.join(map(str, lengths))} training images: with unequal parts some ranks make more steps, "
            "and wait for the others for ever (force_equal_length is for the training set)"
        )
    if sum(lengths) - images >= len(parts):
        return f"{sum(lengths) - images} training images are used more than once; fewer than one for each rank may be"
    return None


def scattered_at_random(seen, case, expected):
    runs = [[of_rank[run] for of_rank in seen] for run in ("train", "again", "other")]
    if problem := _at_random(runs[0]):
        return problem
    if runs[0] != runs[1]:
        return "two runs with the same args.seed deal the images differently: give scatter_dataset the seed"
    return "another args.seed deals the images in the same way" if runs[0] == runs[2] else None


def test_images_once(seen, case, expected):
    parts = [of_rank["test"] for of_rank in seen]
    problem = judges.partition(parts, case["test_images"])
    if problem and "more than once" in problem:
        problem += ": with force_equal_length some test images count twice in the result"
    return problem and f"test set: {problem}"


def evaluates_all(seen, case, expected):
    found = numpy.array([of_rank["result"] for of_rank in seen])
    right = expected["right"]
    problem = judges.explained(found, right, {sentence: values for sentence, values in expected.items() if sentence != "right"})
    if problem is None:
        return None
    return (
        f"the ranks have loss and accuracy {', '.join(f'{loss:.4f} and {accuracy:.4f}' for loss, accuracy in found)}; those of all "
        f"{sum(case['lengths'])} images are {right[0][0]:.4f} and {right[0][1]:.4f}{': ' if problem else ''}{problem}"
    )


def images_of_all(seen, case, expected):
    epochs, lengths, size = case["epoch"] - case["first_epoch"], case["lengths"], len(case["lengths"])
    right = sum(lengths) * epochs
    for images, _ in seen[0]["found"]:
        wrong = {
            f"`images` is one epoch's; this run made {epochs}": sum(lengths),
            "`images` has only one worker's: count those of all": lengths[0] * epochs,
            "`images` has only one worker's, in one epoch: count those of all workers and epochs": lengths[0],
            "a run resumed at first_epoch makes only the epochs that are left": sum(lengths) * case["epoch"],
            "the images of all workers are counted once for every worker": right * size,
        }
        problem = judges.explained(images, right, wrong)
        if problem is not None:
            return f"images = {images:g}, but {right} went through the network{': ' if problem else ''}{problem}"
    return None


DEVICE = Check(
    "device",
    f"{PROBES}:device",
    ({"workers": 1, "gpu": [0]}, {"workers": 1, "gpu": [2, 1]}),
    (Criterion("the GPU asked for", 1, pytorch.right_gpu, "devices.use(id) chooses a GPU; args.gpu is a list of ids."),),
)
DEVICE_OF_RANK = Check(
    "device",
    f"{PROBES}:device",
    ({"workers": 4, "gpu": [1, 0]}, {"workers": 2, "gpu": [0, 1]}),
    (Criterion("a GPU for each rank of a node", 1, pytorch.right_gpu, "comm.intra_rank is this rank's number on its node."),),
)
DEVICES = Check(
    "devices",
    f"{PROBES}:devices",
    ({"gpu": [0, 1]}, {"gpu": [3, 1, 2]}, {"gpu": [1]}),
    (
        Criterion("the first GPU is 'main'", 1, main_first, "{'main': args.gpu[0], 'gpu1': args.gpu[1], ...}, for any number of them."),
        Criterion("every GPU once", 1, all_gpus, "As many names as args.gpu has ids; enumerate counts along."),
    ),
)
IN_BATCHES = "SerialIterator(data set, batch size): it goes through the data again and again, in batches of equal size."
NEW_ORDER = Criterion("a new order every epoch", 1, new_order_every_epoch, "order_sampler=Shuffle(args.seed) draws each epoch's order.")
BY_SEED = Criterion(
    "the order follows from the seed", 1, order_follows_seed, "Whatever is drawn at random must be drawn from args.seed, in resumed runs too."
)
ITERATOR = Check(
    "iterator",
    f"{PROBES}:iterators",
    ({"images": 23, "batchsize": 5},),
    (Criterion("every image once an epoch, in batches", 1, every_image_in_batches, IN_BATCHES), NEW_ORDER, BY_SEED),
)
ITERATORS = Check(
    "iterators",
    f"{PROBES}:iterators",
    ({"images": 47, "batchsize": 5, "devices": 2}, {"images": 48, "batchsize": 4, "devices": 3}),
    (
        Criterion("a part for each GPU", 1, part_for_each_gpu, "split_dataset_n_random(dataset, n) makes n parts of equal size."),
        Criterion("parts at random", 1, parts_at_random, "The data set may be sorted: split_dataset_n_random shuffles it before."),
        Criterion("an iterator over each part", 1, iterator_for_each_part, IN_BATCHES),
        NEW_ORDER,
        BY_SEED,
    ),
)


def _training(gap, cases, criteria):
    return Check(gap, f"{PROBES}:{gap}", tuple({"gap": gap} | case for case in cases), criteria, oracle=f"{ORACLES}:training")


MOMENTUM_SGD = "chainer.optimizers.MomentumSGD(rate, momentum=...); its setup(model) tells it what to update."
OPTIMIZER = _training(
    "optimizer",
    ({"workers": 1, "batchsize": 4, "updates": 3, "lr": 0.037},),
    (Criterion("momentum SGD with the rate asked for", 1, one_big_batch, MOMENTUM_SGD),),
)
OPTIMIZER_OF_GPUS = _training("optimizer", ({"workers": 2, "batchsize": 4, "updates": 3, "lr": 0.037},), OPTIMIZER.criteria)
OF_RANKS = {"multi_node": True, "batchsize": 4, "updates": 3, "lr": 0.037}
EQUAL = Criterion(
    "equal parameters on all ranks", 1, ranks_stay_equal, "create_multi_node_optimizer(optimizer, comm) returns the one to go on with."
)
OPTIMIZER_OF_RANKS = _training(
    "optimizer",
    (OF_RANKS | {"ranks": 3, "workers": 3},),
    (EQUAL, Criterion("the update of one big batch", 2, one_big_batch, "The multi-node optimizer takes the gradients' mean over the ranks.")),
)
UPDATE = Criterion("the update of each batch", 1, one_big_batch, "StandardUpdater(iterator, optimizer, ...)")
CONVERTED = Criterion("batches are converted for the device", 1, converted_for_device, "StandardUpdater has the arguments converter and device.")
UPDATER = _training("updater", ({"workers": 1, "batchsize": 4, "updates": 3, "lr": 0.02},), (UPDATE, CONVERTED))
UPDATER_OF_GPUS = _training(
    "updater",
    tuple({"workers": workers, "batchsize": 4, "updates": 3, "lr": 0.02} for workers in (2, 3)),
    (
        Criterion("the update of one big batch", 2, one_big_batch, "MultiprocessParallelUpdater(iterators, optimizer, devices=...)"),
        Criterion("batches are converted", 1, converted, "MultiprocessParallelUpdater has the argument converter."),
    ),
)
UPDATER_OF_RANKS = _training("updater", (OF_RANKS | {"ranks": 2, "workers": 2},), (UPDATE, CONVERTED))
SCATTER = Check(
    "scatter",
    f"{PROBES}:scatter",
    ({"ranks": 3, "images": 44, "test_images": 10},),
    (
        Criterion("equal training parts", 1, training_parts, "chainermn.scatter_dataset makes training parts of equal length by itself."),
        Criterion("dealt at random", 1, scattered_at_random, "scatter_dataset shuffles if asked to, by a seed if it gets one."),
        Criterion("every test image on exactly one rank", 1, test_images_once, "scatter_dataset(..., force_equal_length=False) repeats none."),
    ),
)
EVALUATOR = Check(
    "evaluator",
    f"{PROBES}:evaluator",
    ({"ranks": 3, "lengths": [7, 4, 3], "batchsize": 3},),
    (Criterion("the mean over the whole test set", 2, evaluates_all, "chainermn.create_multi_node_evaluator(evaluator, comm)"),),
    oracle=f"{ORACLES}:evaluation",
)


def _throughput(lengths, devices=False):
    """Every batch is full and every part as long as others, so that all ways to count agree."""
    common = {"lengths": lengths, "batchsize": 6, "epoch": 4, "devices": devices}
    return Check(
        "throughput",
        f"{PROBES}:throughput",
        (common | {"first_epoch": 0, "seconds": 12.5}, common | {"first_epoch": 1, "seconds": 8.0}),
        (
            Criterion("images of all workers and epochs", 1, images_of_all, "All images of the training set, times the epochs of this run."),
            Criterion("images per second", 1, pytorch.images_a_second, "Throughput is images divided by seconds."),
        ),
    )


def _run(task, **case):
    """The check of a whole script. A step has all images: what comes out must not depend on their order."""
    return Check(
        "run",
        f"{PROBES}:run",
        ({"task": task, "images": 24, "lr": 0.05} | case,),
        (
            Criterion("rank 0 alone reports the throughput", 1, pytorch.rank_0_reports, "Printing and saving are the duties of rank 0."),
            Criterion("result.json tells what was run", 1, pytorch.result_of_run, "What is counted at the end goes into result.json."),
            Criterion("the parameters of our own run", 1, pytorch.same_end, "If all gaps pass, look at the lines between them."),
        ),
        oracle=f"{ORACLES}:run",
        whole=True,
    )


SINGLE_GPU = (DEVICE, ITERATOR, OPTIMIZER, UPDATER, _throughput([48]), _run("single_gpu", workers=1, batchsize=24, epochs=2))
MULTI_GPU = (
    DEVICES,
    ITERATORS,
    OPTIMIZER_OF_GPUS,
    UPDATER_OF_GPUS,
    _throughput([24, 24], devices=True),
    _run("multi_gpu", workers=2, batchsize=12, epochs=2),
)
MULTI_NODE = (
    DEVICE_OF_RANK,
    SCATTER,
    ITERATOR,
    OPTIMIZER_OF_RANKS,
    UPDATER_OF_RANKS,
    EVALUATOR,
    _throughput([24, 24]),
    _run("multi_node", workers=4, ranks=4, ranks_per_node=2, batchsize=6, epochs=3),
)
