"""The devices of replicas: GPUs, or virtual ones (one thread per core) if TensorFlow finds none.

Call one of these functions before any other function of TensorFlow, which fixes its devices and threads at its first
computation.
"""

import tensorflow as tf

from handson.errors import TrackError
from handson.training import virtual_gpus


def use(gpus):
    """Make this process train on the GPUs with these ids, and return TensorFlow's names of them, such as ["GPU:0",
    "GPU:1"].

    Without GPUs, TensorFlow splits its CPU into this many devices ("CPU:0", ...). Each has a thread, and the process
    has their cores. Raises TrackError.
    """
    there = tf.config.list_physical_devices("GPU")
    check(gpus, len(there) or virtual_gpus.COUNT)
    if there:
        mine = [there[gpu] for gpu in gpus]
        tf.config.set_visible_devices(mine, "GPU")
        for gpu in mine:
            tf.config.experimental.set_memory_growth(gpu, True)
        return [f"GPU:{number}" for number in range(len(mine))]
    virtual_gpus.share(gpus)
    threads(len(gpus))
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * len(gpus))
    return [f"CPU:{number}" for number in range(len(gpus))]


def in_use():
    """Return the number of devices that `use` has given to this process."""
    return len(tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU"))


def threads(number):
    """Let `number` operations run at the same time, each in one thread."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(number)


def check(gpus, count):
    """Refuse ids of GPUs that do not exist. Raises TrackError."""
    if missing := [gpu for gpu in gpus if gpu >= count]:
        raise TrackError(f"-g: there is no GPU {missing[0]}; TensorFlow sees those from 0 to {count - 1}")
    if len(set(gpus)) < len(gpus):
        raise TrackError("-g: TensorFlow has one replica for each GPU; name each id once")


def check_batches(images, batchsize, replicas):
    """Refuse a batch size with which the last step of an epoch leaves some `replicas` without images: TensorFlow's
    operations would fail, and the statistics of batch normalisation would be NaN. images: the images per epoch;
    batchsize: the images per replica. Raises TrackError."""
    if 0 < (rest := images % (batchsize * replicas)) < replicas:
        raise TrackError(
            f"-b: batches of {batchsize} for each of {replicas} replicas leave {rest} of {images:,} images for the last"
            " step, fewer than there are replicas: take another batch size"
        )


def describe(gpus, comm=None):
    """Return words for the output: the devices of one process's replicas; or those of `comm`'s processes, each on one
    of its node's `gpus`."""
    if comm is not None:
        check(gpus, len(tf.config.list_physical_devices("GPU")) or virtual_gpus.COUNT)
        if tf.config.list_physical_devices("GPU"):
            return f"{comm.size} GPUs"
        return virtual_gpus.describe(
            [(virtual_gpus.machine(), virtual_gpus.core_of(gpus[rank % len(gpus)])) for rank in range(comm.size)]
        )
    if there := tf.config.list_physical_devices("GPU"):
        check(gpus, len(there))
        return f"{len(gpus)} GPU{'s' * (len(gpus) > 1)}"
    check(gpus, virtual_gpus.COUNT)
    return virtual_gpus.describe_threads(gpus)
