"""The checks of train_cifar_multi_gpu.py, Chainer."""

from grader.checks import criteria, training
from grader.checks.chainer_gaps import (
    IN_BATCHES,
    MOMENTUM_SGD,
    PROBES,
    converted,
    every_image_in_batches,
    in_order,
    optimizer,
    passes,
    run,
    throughput,
    updater,
)
from grader.checks.check import Check, Criterion
from handson.training.banner import name_devices
from handson.words import counted, there


def main_first(seen, case, expected):
    names, ids, gpu = seen[0]["names"], seen[0]["ids"], case["gpu"]
    if "main" not in names:
        return (
            f"`gpus` has no device called 'main' ({', '.join(names) or 'there is none'}): 'main' is the device that"
            " updates the parameters"
        )
    found = ids[names.index("main")]
    if found != gpu[0]:
        return f"with args.gpu = {gpu}, 'main' is GPU {found}, but it must be the first GPU of args.gpu"
    right = name_devices(gpu)
    wrong = sorted(ids) == sorted(gpu) and dict(zip(names, ids)) != right
    return f"with args.gpu = {gpu}, `gpus` is {dict(zip(names, ids))}, but it must be {right}" if wrong else None


def all_gpus(seen, case, expected):
    ids, gpu = seen[0]["ids"], case["gpu"]
    if sorted(ids) == sorted(gpu):
        return None
    if len(set(ids)) < len(ids):
        return f"with args.gpu = {gpu}, `gpus` has the ids {ids}: give each device a different id"
    if len(ids) == len(gpu):
        return f"with args.gpu = {gpu}, `gpus` has the ids {ids}: take the ids from args.gpu"
    return f"`gpus` has {counted(len(ids), 'device')} ({ids}), but args.gpu names {counted(len(gpu), 'GPU')} ({gpu})"


def part_for_each_gpu(seen, case, expected):
    parts, devices, images = seen[0]["parts"], case["workers"], case["images"]
    if len(parts) != devices:
        return (
            f"the data set is split into {counted(len(parts), 'part')} for {counted(devices, 'GPU')}: make one part for"
            " each GPU"
        )
    if devices > 1 and all(sorted(part) == sorted(parts[0]) for part in parts):
        return f"all {devices} parts have the same {len(parts[0])} images: give each GPU its own part"
    lengths, used = [len(part) for part in parts], [sample for part in parts for sample in part]
    if len(set(lengths)) > 1:
        return (
            f"the parts have {', '.join(map(str, lengths))} images, but all devices must run the same number of"
            " steps: make the parts equally long"
        )
    if len(set(used)) < len(used):
        return f"{there(len(used) - len(set(used)), 'image')} in more than one part: each image belongs to one GPU"
    if images - len(used) >= devices:
        return (
            f"{images - len(used)} of {images} images are in no part: the number of images that are left out must be"
            " smaller than the number of GPUs"
        )
    return None


def parts_at_random(seen, case, expected):
    return criteria.dealt_at_random(seen[0]["parts"])


def iterator_for_each_part(seen, case, expected):
    iterators, parts = len(seen[0]["first"]), len(seen[0]["parts"])
    if iterators != parts:
        return f"{there(iterators, 'iterator')} for {counted(parts, 'part')}: make one iterator for each part"
    return every_image_in_batches(seen, case, expected)


def on_all_gpus(seen, case, expected):
    problem, used, gpu = training.one_big_batch(seen, case, expected), seen[0]["gpu"], case["gpu"]
    if problem or used == gpu:
        return problem
    works = f"works on GPUs {used}" if used else "has no list of GPUs and uses one device"
    return f"`updater` {works}, but `gpus` has {gpu}: a MultiprocessParallelUpdater has one worker for each GPU"


DEVICES = Check(
    "devices",
    "grader.units.multi_gpu.probes.probe_multi_gpu_chainer:devices",
    ({"gpu": [0, 1]}, {"gpu": [3, 2, 1]}, {"gpu": [1]}, {"gpu": [2, 2], "edge": "two workers that share a GPU"}),
    (
        Criterion(
            "main_first",
            "`gpus` maps 'main' to the first GPU, and 'gpu1', ... to the next ones",
            1,
            main_first,
            "{'main': args.gpu[0], 'gpu1': args.gpu[1], ...}, for any number of GPUs.",
        ),
        Criterion(
            "each_gpu_once",
            ("`gpus` has every GPU once"),
            1,
            all_gpus,
            "`gpus` needs one name for each id in args.gpu. `enumerate` counts them.",
        ),
    ),
    observed=lambda case: {"names": [str], "ids": [int]},
)
A_PART, AN_ITERATOR, BIG_BATCH = (
    ("one part of the data set for each GPU"),
    "one iterator for each part",
    "an update equals that of one big batch",
)
ITERATORS = Check(
    "iterators",
    f"{PROBES}:iterators",
    (
        {"images": 47, "batchsize": 5, "workers": 2, "gpu": [3, 1]},
        {"images": 48, "batchsize": 4, "workers": 3, "gpu": [0, 4, 2]},
        {"images": 13, "batchsize": 1, "workers": 1, "edge": "one GPU"},
    ),
    (
        Criterion(
            "part_per_gpu",
            A_PART,
            1,
            part_for_each_gpu,
            "`split_dataset_n_random(dataset, n)` makes n parts of equal length.",
        ),
        Criterion(
            "at_random",
            "the parts are random",
            1,
            parts_at_random,
            "The data set may be sorted by class. `split_dataset_n_random` shuffles it before it splits.",
            "part_per_gpu",
        ),
        Criterion("iterator_per_part", AN_ITERATOR, 1, iterator_for_each_part, IN_BATCHES, "part_per_gpu"),
        *in_order("iterator_per_part"),
    ),
    observed=lambda case: passes(lambda form: [form]),
)
UPDATER = updater(
    (
        Criterion(
            "one_big_batch", BIG_BATCH, 3, on_all_gpus, "MultiprocessParallelUpdater(iterators, optimizer, devices=...)"
        ),
        Criterion(
            "batches_converted",
            "`convert` prepares every batch",
            1,
            converted,
            "`MultiprocessParallelUpdater` has an argument `converter`.",
            "one_big_batch",
        ),
    ),
    {"workers": 2, "gpu": [1, 0], "batchsize": 4, "updates": 3, "lr": 0.02},
    {"workers": 3, "gpu": [2, 0, 1], "batchsize": 4, "updates": 3, "lr": 0.02},
)
CHECKS = (
    DEVICES,
    ITERATORS,
    optimizer((MOMENTUM_SGD,), {"workers": 2, "updates": 3, "lr": 0.037, "batchsize": 8}),
    UPDATER,
    throughput(
        {
            "workers": 2,
            "gpu": [3, 1],
            "lengths": [25, 25],
            "images": 51,
            "batchsize": 7,
            "epochs": 4,
            "first_epoch": 0,
            "seconds": 12.5,
        },
        {
            "workers": 2,
            "gpu": [0, 1],
            "lengths": [24, 24],
            "images": 49,
            "batchsize": 6,
            "epochs": 5,
            "first_epoch": 2,
            "seconds": 8.0,
        },
    ),
    run("multi_gpu", workers=2, batchsize=12, epochs=2),
)
