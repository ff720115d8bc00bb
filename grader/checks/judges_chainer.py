"""What the gaps of the Chainer track must do, as functions of what its probes observed (see grader.checks.check.Criterion)."""

import numpy

from grader.checks import criteria


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
            return f"{who} runs over images of other parts too ({criteria.some(extra)}): each iterator gets a part of its own"
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
    return criteria.at_random(parts) if len(parts) > 1 else None


def one_big_batch(seen, case, expected):
    found = numpy.stack([of_rank["parameters"] for of_rank in seen])
    problem = criteria.explained_by(found, expected)
    if problem == "":
        if criteria.close(found, numpy.broadcast_to(found[:, :1], found.shape)):
            return "the parameters never change"
        update = next(number for number in range(case["updates"]) if not criteria.close(found[:, number], expected["right"][:, number]))
        difference = numpy.abs(found[:, update] - expected["right"][:, update]).max()
        return (
            f"after update {update + 1} parameters differ by up to {difference:.2g} from those of momentum SGD "
            f"(rate {case['lr']}, momentum 0.9) in one process with all workers' images in one batch"
        )
    return problem


def ranks_stay_equal(seen, case, expected):
    for update in range(case["updates"]):
        values = [of_rank["parameters"][update] for of_rank in seen]
        if problem := criteria.equal_on_all_ranks(values, f"after update {update + 1} parameters"):
            return problem
    return None


def converted(seen, case, expected):
    calls = len(seen[0]["asked"])
    if not calls:
        return "`convert` is never called: without it images are not enlarged"
    return None if calls >= case["updates"] else f"`convert` is called {calls} times in {case['updates']} updates; every batch goes through it"


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
        return f"{len(missing)} of {images} training images are on no rank ({criteria.some(missing)})"
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
    problem = criteria.partition(parts, case["test_images"])
    if problem and "more than once" in problem:
        problem += ": with force_equal_length some test images count twice in the result"
    return problem and f"test set: {problem}"


def evaluates_all(seen, case, expected):
    found = numpy.array([of_rank["result"] for of_rank in seen])
    problem = criteria.explained_by(found, expected)
    if problem is None:
        return None
    (loss, accuracy), of_ranks = expected["right"][0], ", ".join(f"{loss:.4f} and {accuracy:.4f}" for loss, accuracy in found)
    return criteria.because(
        f"the ranks have loss and accuracy {of_ranks}; those of all {sum(case['lengths'])} images are {loss:.4f} and {accuracy:.4f}", problem
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
        if problem := criteria.images_counted(images, right, wrong):
            return problem
    return None
