"""The checks of replicas.py: the parameters after each step are those of one big batch, and each replica gets its part
of the images."""

import numpy

from grader.checks import criteria, training
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.units.frameworks.frameworks_numbers import CLASSES, FEATURES, MOMENTUM, RATE, endless, parts, samples, start

PROBES = "grader.units.frameworks.probes.probe_replicas:"
TOLERANCE = 2e-5  # TensorFlow computes in single precision
NOT_BY_OPTIMIZER = "the steps have no momentum: `optimizer`, which has it, makes them"


def gradients(weights, case, step):
    """Of each replica's images of a step, with weights (FEATURES + 1, CLASSES): ([sum of their gradients], [sum of
    their losses], [their number])."""
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
    """A function of the replicas' sums and counts: `factor` times the mean over the images of all replicas."""
    return lambda sums, counts: factor * sum(sums) / sum(counts)


def kept(combine, share=MOMENTUM):
    """As `combine`, plus a share of what it gave for the step before: with MOMENTUM, what an optimizer makes of the
    gradients."""
    before = [0]

    def with_the_last(sums, counts):
        before[0] = share * before[0] + combine(sums, counts)
        return before[0]

    return with_the_last


def trained(case, combine):
    """(the weights after each step, the mean loss of each step), where combine(sums, counts) makes one gradient of
    those of the replicas."""
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
            "each replica divides by the number of its own images; apply_gradients then adds these means up: divide"
            " by `total`"
        ): lambda sums, counts: sum(one / count for one, count in zip(sums, counts)),
        "each replica's mean counts the same, however many images it has: divide the sum of its losses by `total`": (
            lambda sums, counts: sum(one / count for one, count in zip(sums, counts)) / len(sums)
        ),
        f"the steps are {replicas} times too large: apply_gradients itself adds up the gradients of all replicas": (
            scaled_mean(replicas)
        ),
        (
            f"the steps are {replicas} times too small: apply_gradients adds up the gradients of the replicas and"
            f" takes no mean"
        ): scaled_mean(1 / replicas),
        "the losses are added up and not divided by `total`": lambda sums, counts: sum(sums),
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
        f"after {case['steps']} steps the parameters differ by up to {off:.2g} from those of one process with all"
        " images of each step"
    )


def _forward_passes(seen, replicas):
    for passes in seen["passes"]:
        if not all(passes):
            return (
                "the model is called without training=True: batch normalisation then takes statistics that it never"
                " learns"
            )
        if len(passes) > replicas:
            return (
                "the images go through the model more than once in a step: one forward pass gives `outputs`, and these"
                " give the loss"
            )
    return (
        None
        if seen["outputs"]
        else (
            "`outputs` are not largest where the model's are for the images before the step: from them the script"
            " computes the accuracy"
        )
    )


def losses_add_up(seen, case, expected):
    _, right = trained(case, kept(scaled_mean(1)))
    found = [sum(of_step) for of_step in seen[0]["losses"]]
    if criteria.close(found, right, TOLERANCE):
        return None
    return f"the sum of the replicas' losses in {of_worst_step(found, right, 'the mean over all images')}"


def of_worst_step(found, right, what):
    """For a sentence: the step whose number found is farthest from the right one, and both; what: the right one, in
    words."""
    step = int(numpy.abs(numpy.subtract(found, right)).argmax())
    shown, due = criteria.distinct_digits(found[step], right[step])
    return f"step {step + 1} is {shown}; {what} is {due}"


def each_once(seen, case, expected):
    everything = list(range(samples(case)))
    for number, epoch in enumerate(seen[0]["epochs"]):
        used = sum(sum(epoch, []), [])
        if len(epoch) == endless(case) and len(used) > len(everything):
            return (
                "an epoch never ends, or has each image several times: leave `repeat` out, as the loop over epochs does"
                " that"
            )
        if any(len(step) != case["replicas"] for step in epoch):
            return (
                f"the {case['replicas']} replicas get the same images: `batches` is what"
                " strategy.experimental_distribute_dataset makes of the tf.data set"
            )
        if not used and number:
            return (
                f"in epoch {number + 1} there are no images: an iterator ends with its first epoch, and a tf.data set"
                " begins anew in each"
            )
        if sorted(used) != everything:
            missing = set(everything).difference(used)
            if missing and len(epoch) < endless(case):
                return (
                    f"in epoch {number + 1}, {len(missing)} of {len(everything)} images are on no replica: the last"
                    " batch may be smaller, but it counts"
                )
            if not missing:
                return f"in epoch {number + 1}, images are used {len(used)} times; there are {len(everything)}"
        if used != everything[: len(used)] and all(
            1 <= numpy.ptp(sum(step, [])) < sum(map(len, step)) for step in epoch
        ):
            return (
                "each step has images that follow each other in the arrays: batches are shuffled, and not images;"
                " `shuffle` comes before `batch`"
            )
        wrong = [sum(map(len, step)) for step in epoch[:-1] if sum(map(len, step)) != case["total"]]
        if wrong:
            return (
                f"a step takes {wrong[0]} images over all replicas; it should take `total`, {case['total']}: the"
                " strategy divides each batch among its replicas"
            )
        if any(0 in map(len, step) for step in epoch[:-1]):
            return "a replica gets no images in some step"
    return None


def new_order(seen, case, expected):
    orders = [sum(sum(epoch, []), []) for epoch in seen[0]["epochs"]]
    new = training.new_order_every_epoch("shuffle does so anew unless it is told not to, or comes before `cache`")
    problem = new([{"parts": [sorted(orders[0])], "orders": [orders]}], case, None)
    before = max((image - place for order in orders for place, image in enumerate(order)), default=0)
    # by chance, if all orders are equally likely: once in half a billion times
    if problem is None and before < samples(case) - (20 * samples(case)) ** 0.5:
        return (
            f"no image comes more than {before} places before its own in the arrays: `shuffle` chooses among as many"
            " images as its buffer holds, so give it len(images)"
        )
    return problem


def also_between_processes(seen, case, expected):
    policy = seen[0]["policy"]
    if policy in ("DATA", "AUTO"):
        return None
    if policy == "":
        return "the strategy does not get a tf.data set from you: use strategy.experimental_distribute_dataset"
    if policy == "FUNCTION":
        return (
            "each process would use all images: dataset.shard(context.num_input_pipelines, context.input_pipeline_id)"
            " is its part"
        )
    why = "each process would use all images" if policy == "OFF" else "there are no files to divide"
    return f"with AutoShardPolicy.{policy}, {why}: take AutoShardPolicy.DATA"


def on_all_replicas(seen, case, expected):
    if wrong := [count for count in seen[0]["model"] if count != case["replicas"]]:
        return (
            f"the variables of the model have {wrong[0]} cop{'y' if wrong[0] == 1 else 'ies'}; with {case['replicas']}"
            f" replicas they need {case['replicas']}: make the model inside `with strategy.scope():`"
        )
    return (
        None
        if seen[0]["own"]
        else (
            "the model's variables belong to another strategy than the one that the function gets: make no new one,"
            " take `strategy`"
        )
    )


def optimizer_too(seen, case, expected):
    counts = seen[0]["optimizer"]
    if len(counts) < len(seen[0]["model"]):
        return (
            "the optimizer has no variables for its momentum yet; with several replicas in a process, strategy.run"
            " would be too late to make them: call its `build`"
        )
    if [count for count in counts if count != case["replicas"]]:
        return "the optimizer's variables are on one device only: make and build it inside `with strategy.scope():`"
    if changed := seen[0]["changed"]:
        return (
            f"the optimizer has another {changed[0]} than make_optimizer() gives it: leave it, since the loss is a mean"
            " over all images already"
        )
    return (
        None
        if seen[0]["knows"]
        else "the optimizer is built for other variables than those of `model`, which it then can't change"
    )


BIG_BATCH, EACH_ONCE, ON_ALL = "the step of one big batch", "each image once an epoch", "the model on all replicas"
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
                "Call make_model() in a block `with strategy.scope():`.",
            ),
            Criterion(
                "optimizer_on_all_replicas",
                "the optimizer on all replicas",
                1,
                optimizer_too,
                "Call make_optimizer() there, too, and optimizer.build(model.trainable_variables).",
                needs="model_on_all_replicas",
            ),
        ),
        observed=lambda case: {"model": (int, int), "own": bool, "optimizer": [int], "knows": bool, "changed": [str]},
    ),
    Check(
        # more than the buffers that one finds in examples
        "divided",
        PROBES + "divided",
        ({"replicas": 2, "samples": 1503, "total": 300},),
        (
            Criterion(
                "every_image_once",
                EACH_ONCE,
                2,
                each_once,
                "`batch(total)` takes the images of all replicas; strategy.experimental_distribute_dataset divides each"
                " batch.",
            ),
            Criterion(
                "new_order_every_epoch",
                "a new order in each epoch",
                1,
                new_order,
                "`.shuffle(len(images), seed=seed)`, before `.batch`.",
                needs="every_image_once",
            ),
            Criterion(
                "part_per_process",
                "a part for each process",
                1,
                also_between_processes,
                "options.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA",
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
                "tf.reduce_sum(losses) / total; then apply_gradients, which adds up the replicas' gradients.",
            ),
            Criterion(
                "losses_add_up",
                "losses that add up to the mean",
                1,
                losses_add_up,
                "loss = tf.reduce_sum(losses) / total",
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
