"""ChainerMN's first example, with digits of 8 x 8 pixels: mpiexec -n 4 python train_mnist.py

An iteration of ordinary training is forward, backward, optimize. ChainerMN adds an all-reduce before optimize: every
worker receives the mean of all workers' gradients, so the parameters stay equal on all workers. The script times all
four steps, and draws them in steps.png.
"""

import time

import handson.chainer  # before chainer: lets it run on today's NumPy
from handson.chainer import devices, timed_mnist
from handson.chainer.communicators import create_communicator
from handson.chainer.evaluators import Evaluator
from handson.chainer.optimizers import create_multi_node_optimizer

import chainer
import chainer.functions as F
import chainer.links as L
import chainermn
import numpy
from chainer.iterators import SerialIterator
from chainer.training import Trainer, extensions

from handson.training import banner, data, results
from handson.training.all_ranks import all_ranks_end_together


class MLP(chainer.Chain):
    """A network that computes scores of 10 classes from images of 64 pixels."""

    def __init__(self, units):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(64, units)
            self.l2 = L.Linear(units, units)
            self.l3 = L.Linear(units, 10)

    def forward(self, images):
        return self.l3(F.relu(self.l2(F.relu(self.l1(images)))))


def train(comm, args):
    device = devices.use(args.gpu[comm.intra_rank])
    numpy.random.seed(0)
    model = L.Classifier(MLP(args.unit))
    model.to_device(device)
    optimizer = create_multi_node_optimizer(chainer.optimizers.Adam(), comm)
    optimizer.setup(model)

    train_set, test_set = data.load_arrays("digits") if comm.rank == 0 else (None, None)
    images = args.epoch * comm.bcast_obj(len(train_set) if comm.rank == 0 else None)
    train_set = chainermn.scatter_dataset(train_set, comm, shuffle=True, seed=0)
    test_set = chainermn.scatter_dataset(test_set, comm, force_equal_length=False)
    train_iterator = SerialIterator(train_set, args.batchsize)
    test_iterator = SerialIterator(test_set, args.batchsize, repeat=False, shuffle=False)

    updater = timed_mnist.TimedUpdater(train_iterator, optimizer, device=device)
    trainer = Trainer(updater, (args.epoch, "epoch"), out=args.out)
    evaluator = Evaluator(test_iterator, model, device=device)
    trainer.extend(chainermn.create_multi_node_evaluator(evaluator, comm))
    if comm.rank == 0:
        trainer.extend(extensions.LogReport())
        trainer.extend(extensions.PrintReport(banner.COLUMNS, out=banner.TableOutput()))

    start = time.perf_counter()
    trainer.run(show_loop_exception_msg=False)
    seconds = time.perf_counter() - start
    if comm.rank == 0:
        print(results.throughput_line(images / seconds, images, seconds))
    timed_mnist.report(updater, comm, args.out)


def main():
    args = timed_mnist.parse(__doc__)
    with all_ranks_end_together():
        comm = create_communicator()
        timed_mnist.announce(comm, args, devices.settle(comm, args))
        train(comm, args)


if __name__ == "__main__":
    main()
