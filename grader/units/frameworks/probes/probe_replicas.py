"""The probes of replicas.py: a MirroredStrategy over virtual devices of the CPU. They import TensorFlow only when they
are called, because the probes of all units are also loaded without the second environment."""

import ast
import functools
import itertools
from pathlib import Path

import numpy

from grader.probes.gap_code import GapCode
from grader.probes.marks import marks, samples_of
from grader.probes.pytorch_scripts import seed_of
from grader.sandbox.rank import StudentMistake
from grader.units.frameworks.frameworks_numbers import CLASSES, FEATURES, MOMENTUM, RATE, endless, parts, samples, start
from handson.words import a_kind


@functools.cache
def _strategy(replicas):
    from handson.tensorflow import devices

    import tensorflow as tf

    devices.threads(2)
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    return tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(replicas)])


def _linear(case, passes=None):
    """Return a linear model with the first weights of the case. passes: a list to which each forward pass appends
    whether it is in training mode."""

    import keras

    class Noting(keras.layers.Layer):
        def call(self, inputs, training=None):
            if passes is not None:
                passes.append(bool(training))
            return inputs

    weights = start(case)
    model = keras.Sequential([keras.layers.Input((FEATURES,)), Noting(), keras.layers.Dense(CLASSES)])
    model.layers[-1].set_weights([weights[:-1], weights[-1]])
    return model


def _copies(variable):
    return len(getattr(variable.value, "values", [0]))


def scope(rank, ranks, source, case):
    """Return on how many replicas the gap's model and optimizer have their variables, whether the model belongs to the
    given strategy ("own"), whether the optimizer is built for the model ("knows"), and which settings of the optimizer
    differ from those of make_optimizer ("changed")."""

    import keras

    def make_optimizer():
        return keras.optimizers.SGD(RATE, momentum=MOMENTUM)

    strategy, settings = _strategy(case["replicas"]), make_optimizer().get_config()
    names = GapCode(source).run(strategy=strategy, make_model=lambda: _linear(case), make_optimizer=make_optimizer)
    model, optimizer = names.model, names.optimizer
    shapes = [tuple(variable.shape) for variable in model.trainable_variables] if isinstance(model, keras.Model) else []
    if shapes != [(FEATURES, CLASSES), (CLASSES,)] or not isinstance(optimizer, keras.optimizers.SGD):
        raise StudentMistake(
            "set `model` to the result of make_model(), and `optimizer` to the result of make_optimizer()"
        )
    momenta = [variable for variable in optimizer.variables if tuple(variable.shape) in shapes]
    return {
        "model": [_copies(variable) for variable in model.trainable_variables],
        "own": all(
            getattr(variable.value, "distribute_strategy", None) is strategy for variable in model.trainable_variables
        ),
        "optimizer": [_copies(variable) for variable in momenta],
        "knows": not momenta or _changes(model, optimizer),
        "changed": [
            name for name, value in optimizer.get_config().items() if name != "name" and value != settings.get(name)
        ],
    }


def _changes(model, optimizer):
    """Return whether a built optimizer can update the variables of a model."""
    try:
        return all(optimizer._get_variable_index(variable) >= 0 for variable in model.trainable_variables)
    except KeyError:
        return False


class _Watched:
    """A strategy that records how its tf.data sets are split between processes. case: as for `divided`."""

    def __init__(self, strategy, case):
        self.strategy, self.case, self.policy = strategy, case, ""

    def __getattr__(self, name):
        return getattr(self.strategy, name)

    def experimental_distribute_dataset(self, dataset, options=None):
        dataset = _with_few_threads(dataset)
        self.policy = dataset.options().experimental_distribute.auto_shard_policy.name
        return self.strategy.experimental_distribute_dataset(dataset, options)

    def distribute_datasets_from_function(self, function, options=None):

        import keras
        import tensorflow as tf

        parts = []
        for process in (0, 1):
            keras.utils.set_random_seed(seed_of(self.case))  # each process does so
            dataset = _with_few_threads(
                function(tf.distribute.InputContext(2, process, self.strategy.num_replicas_in_sync))
            )
            parts.append({int(label) for _, labels in dataset.take(endless(self.case)) for label in labels.numpy()})
        self.policy = "FUNCTION" if parts[0] & parts[1] else "DATA"
        return self.strategy.distribute_datasets_from_function(
            lambda context: _with_few_threads(function(context)), options
        )

    experimental_distribute_datasets_from_function = distribute_datasets_from_function  # its old name


def _with_few_threads(dataset):
    """Return the tf.data set with few threads, which the limits of the sandbox allow."""

    import tensorflow as tf

    few = tf.data.Options()
    few.autotune.enabled, few.threading.private_threadpool_size, few.threading.max_intra_op_parallelism = False, 1, 1
    return dataset.with_options(few)


def divided(rank, ranks, source, case):
    """Return the images of each replica in each step of two epochs."""
    from handson.tensorflow import UNTUNED

    import keras
    import tensorflow as tf

    strategy = _Watched(_strategy(case["replicas"]), case)
    arrays = {
        "images": marks(samples(case), case["seed"]).astype("float32")[:, None],
        "labels": numpy.arange(samples(case)),
    }
    keras.utils.set_random_seed(seed_of(case))
    names = GapCode(source).run(
        strategy=strategy, options=tf.data.Options().merge(UNTUNED), **arrays, total=case["total"], seed=seed_of(case)
    )
    return {"epochs": [_epoch(strategy, names.batches, case) for _ in range(2)], "policy": strategy.policy}


def _epoch(strategy, batches, case):
    """Return the numbers of the images of each replica in each step of an epoch, in at most `endless` steps. Raises
    StudentMistake."""
    sizes, images, labels = [], [], []
    for pair in itertools.islice(batches, endless(case)):
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise StudentMistake(
                f"`batches` yields {a_kind(pair)} in each step, but it must yield pairs of images and labels"
            )
        of_images, of_labels = (
            [numpy.ravel(part) for part in strategy.experimental_local_results(one)] for one in pair
        )
        sizes.append(list(map(len, of_images)))
        images += numpy.concatenate(of_images).tolist()
        labels += numpy.concatenate(of_labels).tolist()
    found = samples_of(images, samples(case), case["seed"])
    if others := sum(image != label for image, label in zip(found, labels)):
        raise StudentMistake(
            f"`batches` has {others} of {len(found)} images with the label of another image: shuffle both together"
        )
    numbers = iter(found)
    return [[list(itertools.islice(numbers, size)) for size in of_step] for of_step in sizes]


def replica_step(rank, ranks, source, case):
    """Return the weights after each step, the loss of each replica, the mode of each forward pass in each step (whether
    it is training), and whether the outputs predict the classes of the model."""

    import keras
    import tensorflow as tf

    strategy, student, passes = _strategy(case["replicas"]), GapCode(source), []
    with strategy.scope():
        model, optimizer = _linear(case, passes), keras.optimizers.SGD(RATE, momentum=MOMENTUM)
        optimizer.build(model.trainable_variables)
    weights, losses, of_steps, alike = [], [], [], []

    def step(images, labels):
        right = model(images, training=True)
        passes.pop()
        names = student.run(model=model, optimizer=optimizer, images=images, labels=labels, total=case["total"])
        if numpy.ndim(names.loss):
            raise StudentMistake(
                "`loss` has one number per image, but it must be one number: their sum divided by `total`"
            )
        alike.append(numpy.array_equal(numpy.argmax(names.outputs, 1), numpy.argmax(right, 1)))
        return names.loss

    for number in range(case["steps"]):
        passes.clear()
        given = parts(case, number)
        images, labels = (
            strategy.experimental_distribute_values_from_function(
                lambda context, which=which: tf.constant(given[context.replica_id_in_sync_group][which])
            )
            for which in (0, 1)
        )
        of_replicas = strategy.experimental_local_results(strategy.run(step, args=(images, labels)))
        losses.append([float(one) for one in of_replicas])
        of_steps.append(list(passes))
        kernel, bias = (numpy.asarray(variable.value, "float64") for variable in model.trainable_variables)
        weights.append(numpy.vstack([kernel, bias]))
    _trace(student, case)
    return {"weights": numpy.stack(weights), "losses": losses, "passes": of_steps, "outputs": all(alike)}


def _trace(student, case):
    """Trace the gap on one device, as the script's tf.function does. AutoGraph reads the source of a function from its
    file. Raises StudentMistake."""

    import keras
    import tensorflow as tf

    model, optimizer = _linear(case), keras.optimizers.SGD(RATE)
    optimizer.build(model.trainable_variables)
    given = {"model": model, "optimizer": optimizer, "total": case["total"]}
    function, names = ast.parse(f"def gap(images, labels, {', '.join(given)}): pass"), dict(vars(student.module))
    function.body[0].body = [*student.tree.body, *student.last]
    Path("gap.py").write_text(ast.unparse(function))
    exec(compile(ast.unparse(function), "gap.py", "exec"), names)
    try:
        tf.function(functools.partial(names["gap"], **given)).get_concrete_function(
            *map(tf.constant, parts(case, 0)[0])
        )
    except Exception as error:
        words = str(error).strip().splitlines()[-1].strip()
        raise StudentMistake(
            f"your code fails in the script, where tf.function traces it with tensors that have no numbers yet: {words}"
        ) from error
