"""The checks of replicas.py: the parameters after each step equal those of one process with the global batch, and each
replica gets its part of the images."""

import numpy

from grader.checks import criteria, training
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.units.frameworks.frameworks_numbers import CLASSES, FEATURES, MOMENTUM, RATE, endless, parts, samples, start

PROBES = "grader.units.frameworks.probes.probe_replicas:"
TOLERANCE = 2e-5  # TensorFlow computes in single precision
NOT_BY_OPTIMIZER = "the updates have no momentum: run them with `optimizer`, which has momentum"


def gradients(weights, case, step):
    """Return ([sum of gradients], [sum of losses], [number of images]) of the replicas in a step, for weights
    (FEATURES + 1, CLASSES)."""
    sums, losses, counts = [], [], []
    for images, labels in parts(case, step):
        inputs = numpy.hstack([images, numpy.ones((len(images), 1))])
        outputs = inputs @ weights
        odds = numpy.exp(outputs - outputs.max(axis=1, keepdims=True))
        shares = odds / odds.sum(axis=1, keepdims=True)
        losses.append(-numpy.log(shares[numpy.arange(len(labels)), labels]).sum())
        shares[numpy.arange(len(labels)), labels] -= 1
        sums.append(inputs.T @ shares)
        counts.append(len(labels))
    return sums, losses, counts


def scaled_mean(factor):
    """Return a function of the replicas' sums and counts: `factor` times the mean over the images of all replicas."""
    return lambda sums, counts: factor * sum(sums) / sum(counts)


def kept(combine, share=MOMENTUM):
    """Return a function that adds to `combine` a share of its result in the step before. With MOMENTUM, it computes the
    update of the optimizer."""
    before = [0]

    def with_the_last(sums, counts):
        before[0] = share * before[0] + combine(sums, counts)
        return before[0]

    return with_the_last


def trained(case, combine):
    """Return (the weights after each step, the mean loss of each step), where combine(sums, counts) computes one
    gradient from the gradients of the replicas."""
    weights, found, losses = start(case), [], []
    for step in range(case["steps"]):
        sums, of_replicas, counts = gradients(weights, case, step)
        weights = weights - RATE * combine(sums, counts)
        found.append(weights)
        losses.append(scaled_mean(1)(of_replicas, counts))
    return numpy.stack(found), losses


def big_batch(seen, case, expected):
    found, replicas = seen[0]["weights"], case["replicas"]
    right, _ = trained(case, kept(scaled_mean(1)))
    if criteria.close(found, right, TOLERANCE):
        return _forward_passes(seen[0], replicas)
    wrong = {
        (
            "`loss` is divided by the number of the replica's own images, and apply_gradients then sums these means:"
            " divide by `total`"
        ): lambda sums, counts: sum(one / count for one, count in zip(sums, counts)),
        "all replicas count the same, even with different numbers of images: divide the sum of the losses by `total`": (
            lambda sums, counts: sum(one / count for one, count in zip(sums, counts)) / len(sums)
        ),
        f"the updates are {replicas} times too large: apply_gradients already sums the gradients of all replicas": (
            scaled_mean(replicas)
        ),
        (
            f"the updates are {replicas} times too small: apply_gradients sums the gradients of the replicas and does"
            f" not average them"
        ): scaled_mean(1 / replicas),
        "`loss` is a sum: divide it by `total`": lambda sums, counts: sum(sums),
        (
            "the parameters do not change: call optimizer.apply_gradients(zip(gradients, model.trainable_variables))"
        ): lambda sums, counts: 0 * sums[0],
    }
    for sentence, combine in wrong.items():
        if criteria.close(found, trained(case, kept(combine))[0], TOLERANCE):
            return sentence
    if criteria.close(found, trained(case, scaled_mean(1))[0], TOLERANCE):
        return NOT_BY_OPTIMIZER
    off = numpy.abs(found - right).max()
    return (
        f"after {case['steps']} steps the parameters differ by up to {off:.2g} from those of one process that trains on"
        " all images of each step"
    )


def _forward_passes(seen, replicas):
    for passes in seen["passes"]:
        if not all(passes):
            return (
                "`model` is called without training=True, so batch normalisation uses its running statistics and never"
                " updates them"
            )
        if len(passes) > replicas:
            return (
                "`model` is called more than once in a step: run one forward pass, and compute `loss` from its"
                " `outputs`"
            )
    return (
        None
        if seen["outputs"]
        else (
            "`outputs` predict other classes than the model before the step: return the outputs of the forward pass,"
            " from which the script computes the accuracy"
        )
    )


def losses_add_up(seen, case, expected):
    _, right = trained(case, kept(scaled_mean(1)))
    found = [sum(of_step) for of_step in seen[0]["losses"]]
    if criteria.close(found, right, TOLERANCE):
        return None
    return f"the sum of the replicas' losses in {of_worst_step(found, right, 'the mean over all images')}"


def of_worst_step(found, right, what):
    """Return words on the step whose number is farthest from the right one, with both numbers; what: the right number,
    in words."""
    step = int(numpy.abs(numpy.subtract(found, right)).argmax())
    shown, due = criteria.distinct_digits(found[step], right[step])
    return f"step {step + 1} is {shown}; {what} is {due}"


def each_once(seen, case, expected):
    everything = list(range(samples(case)))
    for number, epoch in enumerate(seen[0]["epochs"]):
        used = sum(sum(epoch, []), [])
        if len(epoch) == endless(case) and len(used) > len(everything):
            return (
                "`batches` never ends, or has each image several times per epoch: leave out `repeat`, because the"
                " script has a loop over the epochs"
            )
        if any(len(step) != case["replicas"] for step in epoch):
            return (
                f"`batches` is not split among the {case['replicas']} replicas: pass the tf.data set to"
                " strategy.experimental_distribute_dataset"
            )
        if not used and number:
            return (
                f"`batches` has no images in epoch {number + 1}: use the tf.data set, which restarts in each epoch, and"
                " not an iterator, which ends after the first one"
            )
        if sorted(used) != everything:
            missing = set(everything).difference(used)
            if missing and len(epoch) < endless(case):
                return (
                    f"`batches` lacks {len(missing)} of {len(everything)} images in epoch {number + 1}: keep the last"
                    " batch, which may be smaller"
                )
            if not missing:
                return f"`batches` has {len(used)} images in epoch {number + 1}, but there are {len(everything)}"
        if used != everything[: len(used)] and all(
            1 <= numpy.ptp(sum(step, [])) < sum(map(len, step)) for step in epoch
        ):
            return (
                "`batches` contains batches in a new order, but each batch has neighbouring images of the arrays: call"
                " `shuffle` before `batch`"
            )
        wrong = [sum(map(len, step)) for step in epoch[:-1] if sum(map(len, step)) != case["total"]]
        if wrong:
            return (
                f"`batches` has {wrong[0]} images per step over all replicas, but it needs `total`, {case['total']}:"
                " the strategy splits each batch among its replicas"
            )
        if any(0 in map(len, step) for step in epoch[:-1]):
            return "`batches` has a step in which a replica gets no images"
    return None


def new_order(seen, case, expected):
    orders = [sum(sum(epoch, []), []) for epoch in seen[0]["epochs"]]
    new = training.new_order_every_epoch("`shuffle` reshuffles in each epoch by default, unless `cache` comes after it")
    problem = new([{"parts": [sorted(orders[0])], "orders": [orders]}], case, None)
    before = max((image - place for order in orders for place, image in enumerate(order)), default=0)
    # if all orders are equally likely, chance does this once in half a billion times
    if problem is None and before < samples(case) - (20 * samples(case)) ** 0.5:
        return (
            f"`batches` moves no image forward by more than {before} positions: `shuffle` chooses only among the images"
            " in its buffer, so set the buffer to len(images)"
        )
    return problem


def also_between_processes(seen, case, expected):
    policy = seen[0]["policy"]
    if policy in ("DATA", "AUTO"):
        return None
    if policy == "":
        return "the strategy gets no tf.data set: pass yours to strategy.experimental_distribute_dataset"
    if policy == "FUNCTION":
        return (
            "each process would use all images: select its part with dataset.shard(context.num_input_pipelines,"
            " context.input_pipeline_id)"
        )
    why = "each process would use all images" if policy == "OFF" else "it splits files, and there are none"
    return f"AutoShardPolicy.{policy} does not split the images ({why}): use AutoShardPolicy.DATA"


def on_all_replicas(seen, case, expected):
    if wrong := [count for count in seen[0]["model"] if count != case["replicas"]]:
        return (
            f"`model` has {wrong[0]} cop{'y' if wrong[0] == 1 else 'ies'} of its variables, but {case['replicas']}"
            f" replicas need {case['replicas']}: create the model inside `with strategy.scope():`"
        )
    return (
        None
        if seen[0]["own"]
        else ("`model` belongs to another strategy: use the argument `strategy`, and do not create a new one")
    )


def optimizer_too(seen, case, expected):
    counts = seen[0]["optimizer"]
    if len(counts) < len(seen[0]["model"]):
        return (
            "`optimizer` has no variables for its momentum yet, and inside strategy.run it is too late to create them:"
            " call optimizer.build(model.trainable_variables) in the scope"
        )
    if [count for count in counts if count != case["replicas"]]:
        return "`optimizer` has its variables on one device only: create and build it inside `with strategy.scope():`"
    if changed := seen[0]["changed"]:
        return (
            f"`optimizer` has a different {changed[0]} than make_optimizer() sets: do not change it, because the loss"
            " is already a mean over all images"
        )
    return (
        None
        if seen[0]["knows"]
        else (
            "`optimizer` is built for other variables, so it cannot update `model`: build it with"
            " model.trainable_variables"
        )
    )


BIG_BATCH = "the update equals that of one process with the global batch"
EACH_ONCE, ON_ALL = "`batches` has each image once per epoch", "`model` is on all replicas"
CASES_OF_STEP = ({"replicas": 2, "steps": 2, "total": 7},)
CHECKS = (
    Check(
        "scope",
        PROBES + "scope",
        ({"replicas": 2},),
        (
            Criterion(
                "model_on_all_replicas",
                ON_ALL,
                1,
                on_all_replicas,
                "Call make_model() inside `with strategy.scope():`.",
            ),
            Criterion(
                "optimizer_on_all_replicas",
                "`optimizer` is on all replicas",
                1,
                optimizer_too,
                "Call make_optimizer() and optimizer.build(model.trainable_variables) inside the scope, too.",
                needs="model_on_all_replicas",
            ),
        ),
        observed=lambda case: {"model": (int, int), "own": bool, "optimizer": [int], "knows": bool, "changed": [str]},
    ),
    Check(
        # more images than the shuffle buffers in usual examples
        "divided",
        PROBES + "divided",
        ({"replicas": 2, "samples": 1503, "total": 300},),
        (
            Criterion(
                "every_image_once",
                EACH_ONCE,
                2,
                each_once,
                "`batch(total)` makes global batches, and strategy.experimental_distribute_dataset splits each of"
                " them.",
            ),
            Criterion(
                "new_order_every_epoch",
                "`batches` has a new order in each epoch",
                1,
                new_order,
                "Call `.shuffle(len(images), seed=seed)` before `.batch`.",
                needs="every_image_once",
            ),
            Criterion(
                "part_per_process",
                "each process gets its own part of the images",
                1,
                also_between_processes,
                "Set options.experimental_distribute.auto_shard_policy to AutoShardPolicy.DATA.",
                needs="every_image_once",
            ),
        ),
        observed=lambda case: {"epochs": ([[[int]]], [[[int]]]), "policy": str},
    ),
    Check(
        "replica_step",
        PROBES + "replica_step",
        CASES_OF_STEP,
        (
            Criterion(
                "one_big_batch",
                BIG_BATCH,
                3,
                big_batch,
                "Divide tf.reduce_sum(losses) by total. Then call apply_gradients, which sums the replicas' gradients.",
            ),
            Criterion(
                "losses_add_up",
                "the losses of all replicas add up to the mean",
                1,
                losses_add_up,
                "Set `loss` to tf.reduce_sum(losses) / total.",
                needs="one_big_batch",
            ),
        ),
        observed=lambda case: {
            "weights": Array((case["steps"], FEATURES + 1, CLASSES)),
            "losses": ((float,) * case["replicas"],) * case["steps"],
            "passes": ([bool],) * case["steps"],
            "outputs": bool,
        },
    ),
)
