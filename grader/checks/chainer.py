"""The checks of the Chainer track's scripts: for each task, what every gap must do, in public cases."""

from grader.checks import judges_chainer as judges
from grader.checks import pytorch
from grader.checks.check import Check, Criterion

PROBES, ORACLES = "grader.probes.chainer", "grader.checks.oracles_chainer"

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
        Criterion("the first GPU is 'main'", 1, judges.main_first, "{'main': args.gpu[0], 'gpu1': args.gpu[1], ...}, for any number."),
        Criterion("every GPU once", 1, judges.all_gpus, "As many names as args.gpu has ids; enumerate counts along."),
    ),
)
IN_BATCHES = "SerialIterator(data set, batch size): it goes through the data again and again, in batches of equal size."
NEW_ORDER = Criterion("a new order every epoch", 1, judges.new_order_every_epoch, "order_sampler=Shuffle(args.seed) draws each epoch's order.")
BY_SEED = Criterion(
    "the order follows from the seed", 1, judges.order_follows_seed, "What is drawn at random must follow from args.seed, in resumed runs too."
)
ITERATOR = Check(
    "iterator",
    f"{PROBES}:iterators",
    ({"images": 23, "batchsize": 5},),
    (Criterion("every image once an epoch, in batches", 1, judges.every_image_in_batches, IN_BATCHES), NEW_ORDER, BY_SEED),
)
ITERATORS = Check(
    "iterators",
    f"{PROBES}:iterators",
    ({"images": 47, "batchsize": 5, "devices": 2}, {"images": 48, "batchsize": 4, "devices": 3}),
    (
        Criterion("a part for each GPU", 1, judges.part_for_each_gpu, "split_dataset_n_random(dataset, n) makes n parts of equal size."),
        Criterion("parts at random", 1, judges.parts_at_random, "The data set may be sorted: split_dataset_n_random shuffles it before."),
        Criterion("an iterator over each part", 1, judges.iterator_for_each_part, IN_BATCHES),
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
    (Criterion("momentum SGD with the rate asked for", 1, judges.one_big_batch, MOMENTUM_SGD),),
)
OPTIMIZER_OF_GPUS = _training("optimizer", ({"workers": 2, "batchsize": 4, "updates": 3, "lr": 0.037},), OPTIMIZER.criteria)
OF_RANKS = {"multi_node": True, "batchsize": 4, "updates": 3, "lr": 0.037}
EQUAL = Criterion(
    "equal parameters on all ranks", 1, judges.ranks_stay_equal, "create_multi_node_optimizer(optimizer, comm) returns the one to go on with."
)
OPTIMIZER_OF_RANKS = _training(
    "optimizer",
    (OF_RANKS | {"ranks": 3, "workers": 3},),
    (EQUAL, Criterion("the update of one big batch", 2, judges.one_big_batch, "The multi-node optimizer takes the mean of the gradients.")),
)
UPDATE = Criterion("the update of each batch", 1, judges.one_big_batch, "StandardUpdater(iterator, optimizer, ...)")
CONVERTED = Criterion("batches are converted for the device", 1, judges.converted_for_device, "StandardUpdater's arguments: converter, device.")
UPDATER = _training("updater", ({"workers": 1, "batchsize": 4, "updates": 3, "lr": 0.02},), (UPDATE, CONVERTED))
UPDATER_OF_GPUS = _training(
    "updater",
    tuple({"workers": workers, "batchsize": 4, "updates": 3, "lr": 0.02} for workers in (2, 3)),
    (
        Criterion("the update of one big batch", 3, judges.one_big_batch, "MultiprocessParallelUpdater(iterators, optimizer, devices=...)"),
        Criterion("batches are converted", 1, judges.converted, "MultiprocessParallelUpdater has the argument converter."),
    ),
)
UPDATER_OF_RANKS = _training("updater", (OF_RANKS | {"ranks": 2, "workers": 2},), (UPDATE, CONVERTED))
SCATTER = Check(
    "scatter",
    f"{PROBES}:scatter",
    ({"ranks": 3, "images": 44, "test_images": 10},),
    (
        Criterion("equal training parts", 1, judges.training_parts, "chainermn.scatter_dataset makes parts of equal length by itself."),
        Criterion("dealt at random", 1, judges.scattered_at_random, "scatter_dataset shuffles if asked to, by a seed if it gets one."),
        Criterion("every test image on exactly one rank", 1, judges.test_images_once, "scatter_dataset(..., force_equal_length=False) repeats none."),
    ),
)
EVALUATOR = Check(
    "evaluator",
    f"{PROBES}:evaluator",
    ({"ranks": 3, "lengths": [7, 4, 3], "batchsize": 3},),
    (Criterion("the mean over the whole test set", 3, judges.evaluates_all, "chainermn.create_multi_node_evaluator(evaluator, comm)"),),
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
            Criterion("images of all workers and epochs", 1, judges.images_of_all, "All images of the training set, times the epochs of this run."),
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
