"""Train a network on the GPUs of several nodes, an MPI rank for each: mpiexec -n 4 python train_cifar_multi_node.py
--help"""

import time

import handson.chainer  # before chainer: lets it run on today's NumPy
from handson.chainer import communicators, devices
from handson.chainer.data import Enlarge, Shuffle
from handson.chainer.model import get_model
from handson.chainer.optimizers import create_multi_node_optimizer
from handson.chainer.reports import TimedEvaluator, add_reports, resume

import chainer
import chainer.links as L
import chainermn
import numpy
from chainer.iterators import SerialIterator
from chainer.training import Trainer
from chainer.training.updaters import StandardUpdater

from handson.training import data, options, results
from handson.training.all_ranks import all_ranks_end_together
from handson.training.banner import announce


def train(comm, args, train_set, test_set):
    # PUT YOUR CODE: `device`: `devices.use(id)` with a GPU of its own for every rank of a node; args.gpu
    # lists those of the node by intra_rank
    raise NotImplementedError("PUT YOUR CODE: device")

    images_in_all, classes = comm.bcast_obj((len(train_set), len(train_set.classes)) if comm.rank == 0 else None)
    # PUT YOUR CODE: deal rank 0's `train_set`, shuffled by args.seed, in parts of equal length without
    # leaving an image out, and its `test_set` in parts that need not be equal
    raise NotImplementedError("PUT YOUR CODE: scatter")
    test_iterator = SerialIterator(test_set, args.batchsize, repeat=False, shuffle=False)
    # PUT YOUR CODE: `train_iterator`: as in the single-GPU script, over this rank's part
    raise NotImplementedError("PUT YOUR CODE: iterator")

    numpy.random.seed(args.seed)
    model = L.Classifier(get_model(args.model, classes))
    model.to_device(device)
    # PUT YOUR CODE: `optimizer`: as in the single-GPU script, but made a multi-node optimizer, with
    # double buffering if args.double_buffering, before it is set up for the model
    raise NotImplementedError("PUT YOUR CODE: optimizer")

    convert = Enlarge(args.size)
    # PUT YOUR CODE: `updater`: takes batches from the iterator, runs forward and backward, and has the
    # optimizer update
    raise NotImplementedError("PUT YOUR CODE: updater")
    trainer = Trainer(updater, (args.epoch, "epoch"), out=args.out)
    evaluator = TimedEvaluator(test_iterator, model, converter=convert, device=device)
    trainer.extend(chainermn.extensions.AllreducePersistent(model, comm))
    # PUT YOUR CODE: `evaluator`: every rank evaluates its part of the test set, and the parts are put
    # together
    raise NotImplementedError("PUT YOUR CODE: evaluator")
    add_reports(trainer, evaluator, comm)
    first_epoch = resume(trainer, args.resume)

    start = time.perf_counter()
    trainer.run(show_loop_exception_msg=False)
    seconds = time.perf_counter() - start

    # PUT YOUR CODE: how many `images` all ranks together trained on since `first_epoch` (not 0 in a
    # resumed run), and what `throughput` a second is that? `train_set` is now this rank's part
    raise NotImplementedError("PUT YOUR CODE: throughput")
    results.finish(args, trainer, evaluator, throughput, images, seconds)


def main():
    args = options.parse(gpus=None, add_options=communicators.add_options)
    with all_ranks_end_together():
        comm = communicators.create_communicator(args.communicator, allreduce_grad_dtype=args.allreduce_grad_dtype)
        device_words = devices.settle(comm, args)
        train_set, test_set = data.load_arrays(args.dataset) if comm.rank == 0 else (None, None)
        announce("multiple nodes", args, train_set, device_words, comm)
        train(comm, args, train_set, test_set)


if __name__ == "__main__":
    main()
