"""Train with TensorFlow's MultiWorkerMirroredStrategy, a process for each GPU: mpiexec -n 2 python train_cifar_multi_worker.py --help

Keras 3's `fit` fails under this strategy, so the loop is here: strategy.run calls `replica_step` on each replica."""

import os
import time
from pathlib import Path

import numpy
from cluster import tf_config
from replicas import build, divided, replica_step

from handson.tensorflow import keras, reports, tf, workers
from handson.tensorflow.model import convnet
from handson.training import data, meeting, options, results
from handson.training.banner import announce


def train(comm, strategy, args, train_set, test_set):
    total = args.batchsize * strategy.num_replicas_in_sync
    keras.utils.set_random_seed(args.seed)  # all workers begin with the same weights
    model, optimizer = build(
        strategy,
        lambda: convnet(train_set.images.shape[1:], args.size, len(train_set.classes)),
        lambda: keras.optimizers.SGD(args.lr, momentum=0.9),
    )
    batches = divided(strategy, train_set.images, train_set.labels, total, args.seed)
    table = reports.Table(workers.evaluator(strategy, model, test_set, args.batchsize), print if comm.rank == 0 else workers.nothing)

    def part(images, labels, size):
        outputs, loss = replica_step(model, optimizer, images, labels, size)
        correct = tf.equal(tf.argmax(outputs, 1), labels)
        return loss * size, tf.reduce_sum(tf.cast(correct, "float32"))

    @tf.function
    def step(images, labels):
        """(sum of the losses, images that were right, images) of a step, over all replicas."""
        mine = strategy.run(lambda labels: tf.cast(tf.size(labels), "float32"), args=(labels,))
        size = strategy.reduce("SUM", mine, axis=None)  # the last step of an epoch has fewer
        return *(strategy.reduce("SUM", one, axis=None) for one in strategy.run(part, args=(images, labels, size))), size

    start = time.perf_counter()
    table.begin()
    for _ in range(args.epoch):
        sums = 0
        for images, labels in batches:
            sums += numpy.array([float(one) for one in step(images, labels)])
            table.step()
        table.add(*(sums[:2] / sums[2]))
    seconds = time.perf_counter() - start

    images = len(train_set) * args.epoch
    if comm.rank == 0:
        results.report(args, images / seconds, images, seconds, table.log, table.seconds)


def main():
    args = options.parse(gpus=None)
    config = None  # TF_CONFIG is there already
    if "TF_CONFIG" not in os.environ:
        lines = Path(os.environ["PBS_NODEFILE"]).read_text().splitlines(keepends=True)
        config = tf_config(lines, options.launcher_rank(), meeting.port())
    comm = meeting.meet(args, config)
    strategy = workers.multi_worker_strategy(comm, args)
    train_set, test_set = data.load_arrays(args.dataset)
    announce("multiple nodes", args, train_set, comm.devices, comm)
    train(comm, strategy, args, train_set, test_set)


if __name__ == "__main__":
    main()
