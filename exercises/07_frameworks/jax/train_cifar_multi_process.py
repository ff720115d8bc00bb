"""Train with JAX's shard_map on the cores of several nodes, which act as virtual GPUs: mpiexec -n 2 python
train_cifar_multi_process.py --help"""

import time

from handson.jax import devices, jax_ranks, reports
from handson.jax.model import initial

import jax
import numpy
import optax
from sharded import DIVIDED, EVERYWHERE, make_step

from handson.training import data, options, results
from handson.training.banner import announce
from handson.training.epoch_table import EpochTable


def train(comm, args, train_set, test_set):
    mesh = jax.make_mesh((jax.device_count(),), ("images",))  # the devices of all processes
    devices.check_batches(len(train_set), args.batchsize, mesh.size)
    total = args.batchsize * mesh.size

    def share(*arrays):
        mine = [numpy.split(array, comm.size)[comm.rank] for array in arrays]
        return jax.make_array_from_process_local_data(jax.NamedSharding(mesh, DIVIDED), mine)

    parameters, statistics = initial(args.seed, len(train_set.classes))  # all processes start with the same weights
    optimizer = optax.sgd(args.lr, momentum=0.9)
    state = parameters, statistics, optimizer.init(parameters)
    state = jax.device_put(state, jax.NamedSharding(mesh, EVERYWHERE))
    step = make_step(mesh, args.size, optimizer)
    evaluate = reports.evaluator(share, test_set, args.size, total)
    table = EpochTable(lambda: evaluate(*state[:2]), speaks=comm.rank == 0)

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
    if comm.rank == 0:
        results.report(args, images / seconds, images, seconds, table.log, table.seconds)


def main():
    args = options.parse(gpus=None)
    comm = jax_ranks.meet(args)
    train_set, test_set = data.load_arrays(args.dataset)
    announce("multiple nodes", args, train_set, comm.devices, comm)
    train(comm, args, train_set, test_set)


if __name__ == "__main__":
    main()
