"""Train with ChainerMN's options instead of communication hooks: mpiexec -n 2 python train_hooks.py --help"""

from functools import partial

import handson.chainer  # before chainer: lets it run on today's NumPy
from handson.chainer import chainer_method_runs, devices
from handson.chainer.communicators import create_communicator
from handson.chainer.data import Enlarge, Shuffle
from handson.chainer.model import WideNet
from handson.chainer.optimizers import create_multi_node_optimizer

import chainer
import chainer.links as L
import chainermn
import half_and_late
import numpy
from chainer.iterators import SerialIterator
from chainer.training.updaters import StandardUpdater

from handson.training import data, options
from handson.training.all_ranks import all_ranks_end_together
from handson.training.banner import announce

# name -> the data type of the gradients on the network (None: that of the parameters), and a function that creates the
# optimizer
METHODS = {
    "plain": (None, create_multi_node_optimizer),
    "float16": ("float16", create_multi_node_optimizer),
    "double-buffering": (None, half_and_late.late),
    "float16-double-buffering": ("float16", half_and_late.late),
}


def train(args, method, train_set, test_set):
    dtype, make_optimizer = METHODS[method]
    comm = half_and_late.half(dtype)
    device = devices.use(args.gpu[comm.intra_rank])
    everything = train_set if comm.rank == 0 else None
    mine = chainermn.scatter_dataset(everything, comm, shuffle=True, seed=args.seed)
    train_iterator = SerialIterator(mine, args.batchsize, order_sampler=Shuffle(args.seed))

    numpy.random.seed(args.seed)
    model = L.Classifier(WideNet(len(test_set.classes)))
    model.to_device(device)
    model.add_hook(chainer_method_runs.FiniteLoss(comm.rank))
    optimizer = make_optimizer(chainer.optimizers.SGD(args.lr), comm)
    optimizer.setup(model)
    convert = Enlarge(args.size)
    updater = StandardUpdater(train_iterator, optimizer, converter=convert, device=device)

    progress = chainer_method_runs.Progress(comm, method)
    while updater.epoch < args.epoch:
        updater.update()
        if updater.is_new_epoch:
            chainer_method_runs.wait(optimizer)  # otherwise the evaluation would hide an all-reduce
            progress.add(model.loss.array, model, test_set, convert, device)
    progress.report(args, len(mine) * comm.size * args.epoch)


def main():
    add_options = partial(chainer_method_runs.add_options, methods=METHODS)
    args = options.parse(gpus=None, add_options=add_options)
    with all_ranks_end_together():
        comm = create_communicator("naive")
        device_words = devices.settle(comm, args)
        train_set, test_set = data.load_arrays(args.dataset)
        announce("multiple nodes", args, train_set, device_words, comm)
        for method, seed in chainer_method_runs.runs(args):
            train(chainer_method_runs.one_run(args, method, seed), method, train_set, test_set)


if __name__ == "__main__":
    main()
