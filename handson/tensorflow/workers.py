"""The strategies of several processes, and their common evaluation and end."""

import atexit
import os
import sys

from handson.tensorflow import UNTUNED, devices, reports

import numpy
import tensorflow as tf

from handson.errors import TrackError
from handson.training import progress, virtual_gpus
from handson.training import tensorflow_rendezvous as rendezvous


def use(comm, args):
    """Make this worker train on its GPU of its node, and end when another worker dies. Call it before the strategy is
    created. comm.devices becomes the words for all workers."""
    _end_together()
    atexit.register(_part)
    comm.devices = devices.describe(args.gpu, comm)
    devices.use([args.gpu[comm.intra_rank]])


def coordinate(comm):
    """Prepare the chief of a cluster for its strategy; it ends when another process does. comm.devices becomes the
    words for all workers."""
    _end_together()
    tf.get_logger().setLevel("CRITICAL")  # its long report on a lost process repeats the sentence of end_together
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    workers = comm.size - 2
    comm.devices = virtual_gpus.describe(
        [(virtual_gpus.machine(), virtual_gpus.core_of(number)) for number in range(workers)]
    )
    devices.threads(2)


def serve(comm):
    """Run a parameter server or a worker of a chief until the chief has ended. Does not return."""
    if not tf.config.list_physical_devices("GPU"):
        os.sched_setaffinity(0, {virtual_gpus.core_of(max(0, comm.rank - 2))})
    cluster, role, index = rendezvous.read(os.environ["TF_CONFIG"])
    # with a single inter-op thread, the server would hang
    settings = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=4)
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster), job_name=role, task_index=index, protocol="grpc", config=settings, start=True
    )
    progress.begin(patience=0)  # no time limit: it waits for work until the chief ends
    rendezvous.end_with_first()
    server.join()


def _end_together():
    """End when another process dies, with a sentence instead of TensorFlow's long report."""
    rendezvous.end_together()
    before = sys.excepthook
    sys.excepthook = lambda kind, error, trace: before(*_named(kind, error, trace))


def _named(kind, error, trace):
    if not isinstance(error, (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)):
        return kind, error, trace
    found = next((role for role in ("ps", "worker", "chief") if f"/job:{role}" in str(error)), "another process")
    error = rendezvous.lost({"ps": "the parameter server", "worker": "a worker"}.get(found, found))
    return type(error), error, None


def _part():
    """Mark the end of a worker's work: unless it ends with an error, workers may now end in any order."""
    if not hasattr(sys, "last_value"):
        rendezvous.part()


def evaluator(strategy, model, test_set, batchsize):
    """Return a function that returns (loss, accuracy) on a test set. Each worker evaluates its part, and the sums are
    added up. Raises TrackError."""
    if not all(strategy.extended.variable_created_in_scope(variable.value) for variable in model.variables):
        raise TrackError(
            "the model has variables that were not created by the strategy: create it inside `with"
            " strategy.scope():`, in `build` of replicas.py"
        )
    total, number = batchsize * strategy.num_replicas_in_sync, len(test_set)
    filled = number + -number % total  # padded with images of weight 0, so that all workers have the same number
    of_all = [numpy.resize(one, (filled, *one.shape[1:])) for one in (test_set.images, test_set.labels)]
    counts = (numpy.arange(filled) < number).astype("float32")
    options = tf.data.Options().merge(UNTUNED)
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = tf.data.Dataset.from_tensor_slices((*of_all, counts)).batch(total).with_options(options)
    batches = strategy.experimental_distribute_dataset(batches)

    def part(images, labels, counts):
        outputs = model(images, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
        return tf.reduce_sum(counts * losses), tf.reduce_sum(
            counts * tf.cast(tf.argmax(outputs, 1) == labels, "float32")
        )

    @tf.function
    def sums(*batch):
        return [strategy.reduce("SUM", one, axis=None) for one in strategy.run(part, args=batch)]

    return reports.means(sums, batches, number)
