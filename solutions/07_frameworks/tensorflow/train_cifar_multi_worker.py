"""Train with TensorFlow's MultiWorkerMirroredStrategy, one process per GPU: mpiexec -n 2 python
train_cifar_multi_worker.py --help

Keras 3's `fit` fails under this strategy, so this script has its own loop: strategy.run calls `replica_step` on each
replica."""

import time

from handson.tensorflow import devices, reports, workers
from handson.tensorflow.model import get_model

import keras
import tensorflow as tf
from cluster import tf_config
from replicas import build, divided, replica_step

from handson.training import data, options, results
from handson.training import tensorflow_rendezvous as rendezvous
from handson.training.banner import announce


def train(comm, strategy, args, train_set, test_set):
    devices.check_batches(len(train_set), args.batchsize, strategy.num_replicas_in_sync)
    total = args.batchsize * strategy.num_replicas_in_sync
    keras.utils.set_random_seed(args.seed)  # all workers start with the same weights
    model, optimizer = build(
        strategy,
        lambda: get_model(args.model, train_set.images.shape[1:], args.size, len(train_set.classes)),
        lambda: keras.optimizers.SGD(args.lr, momentum=0.9),
    )
    batches = divided(strategy, train_set.images, train_set.labels, total, args.seed)
    table = reports.Table(workers.evaluator(strategy, model, test_set, args.batchsize), speaks=comm.rank == 0)

    # the last step of an epoch has fewer images
    sizes = [min(total, len(train_set) - begin) for begin in range(0, len(train_set), total)]

    def part(images, labels, size):
        outputs, loss = replica_step(model, optimizer, images, labels, size)
        return tf.stack([loss * size, tf.reduce_sum(tf.cast(tf.equal(tf.argmax(outputs, 1), labels), "float32"))])

    @tf.function
    def step(images, labels, size):
        """Return (sum of the losses, number of correct images) of a step, over all replicas."""
        return strategy.reduce("SUM", strategy.run(part, args=(images, labels, size)), axis=None)

    start = time.perf_counter()
    table.begin()
    for _ in range(args.epoch):
        sums = tf.zeros(2)
        for (images, labels), size in zip(batches, sizes):
            sums += step(images, labels, size)
            table.step()
        table.add(*(sums / len(train_set)).numpy())
    seconds = time.perf_counter() - start

    images = len(train_set) * args.epoch
    if comm.rank == 0:
        results.report(args, images / seconds, images, seconds, table.log, table.seconds)


def main():
    args = options.parse(gpus=None)
    comm = rendezvous.meet(args, rendezvous.of_job(tf_config))
    workers.use(comm, args)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    train_set, test_set = data.load_arrays(args.dataset)
    announce("multiple nodes", args, train_set, comm.devices, comm)
    train(comm, strategy, args, train_set, test_set)


if __name__ == "__main__":
    main()
