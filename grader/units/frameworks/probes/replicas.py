"""The probes of replicas.py: a MirroredStrategy over virtual devices of the CPU. They import TensorFlow when they are called, since the probes of
all units are loaded where there is no second environment."""

import functools

import numpy

from grader.box.rank import Wrong
from grader.probes.student import Student
from grader.units.frameworks.numbers import CLASSES, FEATURES, RATE, parts, samples, start

ENDLESS = 200  # steps of an epoch


@functools.cache
def _strategy(replicas):
    from handson.tensorflow import devices, tf

    devices.threads(2)
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    return tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(replicas)])


def _linear(case, passes=None):
    """A linear model with the weights that the case starts with. passes: a list that gets, of each forward pass, whether it is in training."""
    from handson.tensorflow import keras

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
    """On how many replicas the variables of the model, and of the optimizer, are that the gap makes; whether the model's are those of the strategy
    that it gets ("own"), and whether the optimizer knows them."""
    from handson.tensorflow import keras

    strategy = _strategy(case["replicas"])
    names = Student(source).run(
        strategy=strategy, make_model=lambda: _linear(case), make_optimizer=lambda: keras.optimizers.SGD(RATE, momentum=0.9)
    )
    model, optimizer = names.model, names.optimizer
    if not isinstance(model, keras.Model) or not isinstance(optimizer, keras.optimizers.Optimizer):
        raise Wrong("`model` should be what make_model() returns, and `optimizer` what make_optimizer() returns")
    shapes = [tuple(variable.shape) for variable in model.trainable_variables]
    momenta = [variable for variable in optimizer.variables if tuple(variable.shape) in shapes]
    return {
        "model": [_copies(variable) for variable in model.trainable_variables],
        "own": all(getattr(variable.value, "distribute_strategy", None) is strategy for variable in model.trainable_variables),
        "optimizer": [_copies(variable) for variable in momenta],
        "knows": not momenta or _changes(model, optimizer),
    }


def _changes(model, optimizer):
    """Whether an optimizer that is built can change the variables of a model."""
    try:
        return all(optimizer._get_variable_index(variable) >= 0 for variable in model.trainable_variables)
    except KeyError:
        return False


class _Watched:
    """A strategy that notes how the tf.data sets that it divides are to be shared between processes."""

    def __init__(self, strategy):
        self.strategy, self.policy = strategy, ""

    def __getattr__(self, name):
        return getattr(self.strategy, name)

    def experimental_distribute_dataset(self, dataset, options=None):
        dataset = _with_few_threads(dataset)
        self.policy = dataset.options().experimental_distribute.auto_shard_policy.name
        return self.strategy.experimental_distribute_dataset(dataset, options)

    def distribute_datasets_from_function(self, function, options=None):
        from handson.tensorflow import tf

        processes = [tf.distribute.InputContext(2, process, self.strategy.num_replicas_in_sync) for process in (0, 1)]
        parts = [{int(label) for _, labels in _with_few_threads(function(context)) for label in labels} for context in processes]
        self.policy = "FUNCTION" if parts[0] & parts[1] else "DATA"
        return self.strategy.distribute_datasets_from_function(lambda context: _with_few_threads(function(context)), options)


def _with_few_threads(dataset):
    """A tf.data set for which a sandbox has room."""
    from handson.tensorflow import tf

    few = tf.data.Options()
    few.autotune.enabled, few.threading.private_threadpool_size, few.threading.max_intra_op_parallelism = False, 1, 1
    return dataset.with_options(few)


def divided(rank, ranks, source, case):
    """Which images each replica gets in each step of two epochs."""
    from handson.tensorflow import UNTUNED, tf

    strategy = _Watched(_strategy(case["replicas"]))
    numbers = numpy.arange(samples(case))
    arrays = {"images": numbers.astype("float32")[:, None], "labels": numbers}
    names = Student(source).run(strategy=strategy, options=tf.data.Options().merge(UNTUNED), **arrays, total=case["total"], seed=case["seed"] % 1000)
    epochs = []
    for _ in range(2):
        epochs.append([])
        for step, (images, labels) in enumerate(names.batches):
            of_replicas = strategy.experimental_local_results(labels)
            if not all(isinstance(part, tf.Tensor) for part in of_replicas) or step == ENDLESS:
                break
            epochs[-1].append([[int(label) for label in part] for part in of_replicas])
    return {"epochs": epochs, "policy": strategy.policy}


def replica_step(rank, ranks, source, case):
    """The weights after each step, the loss of each replica, the forward passes of all replicas in each step, of each whether it is in
    training, and whether all outputs are those of the loss."""
    from handson.tensorflow import keras, tf

    strategy, student, passes = _strategy(case["replicas"]), Student(source), []
    with strategy.scope():
        model, optimizer = _linear(case, passes), keras.optimizers.SGD(RATE)
        optimizer.build(model.trainable_variables)
    weights, losses, of_steps, alike = [], [], [], []

    def step(images, labels):
        right = model(images, training=True)
        passes.pop()
        names = student.run(model=model, optimizer=optimizer, images=images, labels=labels, total=case["total"])
        alike.append(numpy.allclose(names.outputs, right, atol=1e-5))
        return names.loss

    for number in range(case["steps"]):
        passes.clear()
        given = parts(case, number)
        images, labels = (
            strategy.experimental_distribute_values_from_function(lambda context, which=which: tf.constant(given[context.replica_id_in_sync_group][which]))
            for which in (0, 1)
        )
        of_replicas = strategy.experimental_local_results(strategy.run(step, args=(images, labels)))
        losses.append([float(tf.reduce_sum(one)) for one in of_replicas])
        of_steps.append(list(passes))
        kernel, bias = (numpy.asarray(variable.value, "float64") for variable in model.trainable_variables)
        weights.append(numpy.vstack([kernel, bias]))
    return {"weights": numpy.stack(weights), "losses": losses, "passes": of_steps, "outputs": all(alike)}
