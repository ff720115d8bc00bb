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
    ### BEGIN SOLUTION device:
    ### set `device` to the result of `devices.use(id)`. Every rank of a node needs a different GPU:
    ### args.gpu lists the node's ids by intra_rank
    device = devices.use(args.gpu[comm.intra_rank])
    ### END SOLUTION

    images_in_all, classes = comm.bcast_obj((len(train_set), len(train_set.classes)) if comm.rank == 0 else None)
    ### BEGIN SOLUTION scatter:
    ### scatter rank 0's `train_set`, shuffled with args.seed, in parts of the same length that
    ### include every image. Scatter its `test_set` in parts that may have different lengths
    train_set = chainermn.scatter_dataset(train_set, comm, shuffle=True, seed=args.seed)
    test_set = chainermn.scatter_dataset(test_set, comm, force_equal_length=False)
    ### END SOLUTION
    test_iterator = SerialIterator(test_set, args.batchsize, repeat=False, shuffle=False)
    ### BEGIN SOLUTION iterator:
    ### set `train_iterator` to an iterator over this rank's part, as in the single-GPU script
    train_iterator = SerialIterator(train_set, args.batchsize, order_sampler=Shuffle(args.seed))
    ### END SOLUTION

    numpy.random.seed(args.seed)
    model = L.Classifier(get_model(args.model, classes))
    model.to_device(device)
    ### BEGIN SOLUTION optimizer:
    ### set `optimizer` to that of the single-GPU script, make it a multi-node optimizer (with
    ### double buffering if args.double_buffering), and only then set it up for the model
    optimizer = chainer.optimizers.MomentumSGD(args.lr, momentum=0.9)
    optimizer = create_multi_node_optimizer(optimizer, comm, double_buffering=args.double_buffering)
    optimizer.setup(model)
    ### END SOLUTION

    convert = Enlarge(args.size)
    ### BEGIN SOLUTION updater:
    ### set `updater` to a StandardUpdater: it takes batches from the iterator, runs forward and
    ### backward, and lets the optimizer update the model
    updater = StandardUpdater(train_iterator, optimizer, converter=convert, device=device)
    ### END SOLUTION
    trainer = Trainer(updater, (args.epoch, "epoch"), out=args.out)
    evaluator = TimedEvaluator(test_iterator, model, converter=convert, device=device)
    trainer.extend(chainermn.extensions.AllreducePersistent(model, comm))
    ### BEGIN SOLUTION evaluator:
    ### set `evaluator` to a multi-node evaluator: every rank evaluates its part of the test set,
    ### and the results of all ranks are combined
    evaluator = chainermn.create_multi_node_evaluator(evaluator, comm)
    ### END SOLUTION
    add_reports(trainer, evaluator, comm)
    first_epoch = resume(trainer, args.resume)

    start = time.perf_counter()
    trainer.run(show_loop_exception_msg=False)
    seconds = time.perf_counter() - start

    ### BEGIN SOLUTION throughput:
    ### set `images` to the number of images that all ranks together trained on since `first_epoch`
    ### (in a resumed run, this is not 0), and `throughput` to the images per second. Here,
    ### `train_set` is only this rank's part
    images = images_in_all * (args.epoch - first_epoch)
    throughput = images / seconds
    ### END SOLUTION
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
