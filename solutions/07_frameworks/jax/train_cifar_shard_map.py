"""Train with JAX's shard_map: one process that computes a part of each batch on each virtual GPU: python
train_cifar_shard_map.py --help"""

import time

from handson.jax import devices, reports
from handson.jax.model import initial

import jax
import numpy
import optax
from sharded import DIVIDED, EVERYWHERE, make_step

from handson.training import data, options, results, virtual_gpus
from handson.training.banner import announce
from handson.training.epoch_table import EpochTable


def train(args, train_set, test_set):
    mesh = jax.make_mesh((jax.device_count(),), ("images",))
    devices.check_batches(len(train_set), args.batchsize, mesh.size)
    total = args.batchsize * mesh.size

    def share(*arrays):
        return jax.device_put(arrays, jax.NamedSharding(mesh, DIVIDED))

    parameters, statistics = initial(args.seed, len(train_set.classes))
    optimizer = optax.sgd(args.lr, momentum=0.9)
    state = parameters, statistics, optimizer.init(parameters)
    state = jax.device_put(state, jax.NamedSharding(mesh, EVERYWHERE))
    step = make_step(mesh, args.size, optimizer)
    evaluate = reports.evaluator(share, test_set, args.size, total)
    table = EpochTable(lambda: evaluate(*state[:2]))

    start = time.perf_counter()
    table.begin()
    for epoch in range(args.epoch):
        order = numpy.random.RandomState([args.seed, epoch]).permutation(len(train_set))
        sums = numpy.zeros(2)
        for begin in range(0, len(order), total):
            batch = order[begin : begin + total]
            state, means = step(state, *share(train_set.images[batch], train_set.labels[batch]))
            sums += numpy.multiply(means, len(batch))
            table.step()
        table.add(*sums / len(train_set))
    seconds = time.perf_counter() - start

    images = len(train_set) * args.epoch
    results.report(args, images / seconds, images, seconds, table.log, table.seconds)


def main():
    args = options.parse(gpus=[0, 1])
    train_set, test_set = data.load_arrays(args.dataset)
    announce("multiple GPUs", args, train_set, virtual_gpus.describe_threads(args.gpu))
    devices.use(args.gpu)
    train(args, train_set, test_set)


if __name__ == "__main__":
    main()
