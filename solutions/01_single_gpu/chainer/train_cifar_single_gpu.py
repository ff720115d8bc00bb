"""Train a network on one GPU and measure the throughput. Options: python train_cifar_single_gpu.py --help"""

import time

import handson.chainer  # before chainer: lets it run on today's NumPy
from handson.chainer import devices
from handson.chainer.data import Enlarge, Shuffle
from handson.chainer.model import get_model
from handson.chainer.reports import TimedEvaluator, add_reports, resume

import chainer
import chainer.links as L
import numpy
from chainer.iterators import SerialIterator
from chainer.training import Trainer
from chainer.training.updaters import StandardUpdater

from handson.training import data, options, results
from handson.training.banner import announce


def train(args, train_set, test_set):
    ### BEGIN SOLUTION device:
    ### set `device` to the result of `devices.use(id)`, where `id` is the first GPU in args.gpu
    device = devices.use(args.gpu[0])
    ### END SOLUTION

    test_iterator = SerialIterator(test_set, args.batchsize, repeat=False, shuffle=False)
    ### BEGIN SOLUTION iterator:
    ### set `train_iterator` to an iterator over the training set, with batches of args.batchsize
    ### images, in the order of Shuffle(args.seed)
    train_iterator = SerialIterator(train_set, args.batchsize, order_sampler=Shuffle(args.seed))
    ### END SOLUTION

    numpy.random.seed(args.seed)
    model = L.Classifier(get_model(args.model, len(train_set.classes)))
    model.to_device(device)
    ### BEGIN SOLUTION optimizer:
    ### set `optimizer` to momentum SGD with learning rate args.lr and momentum 0.9, and set it up
    ### for the model
    optimizer = chainer.optimizers.MomentumSGD(args.lr, momentum=0.9)
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
    add_reports(trainer, evaluator)
    first_epoch = resume(trainer, args.resume)

    start = time.perf_counter()
    trainer.run(show_loop_exception_msg=False)
    seconds = time.perf_counter() - start

    ### BEGIN SOLUTION throughput:
    ### set `images` to the number of images that the network trained on since `first_epoch` (in a
    ### resumed run, this is not 0), and `throughput` to the images per second
    images = len(train_set) * (args.epoch - first_epoch)
    throughput = images / seconds
    ### END SOLUTION
    results.finish(args, trainer, evaluator, throughput, images, seconds)


def main():
    args = options.parse(gpus=[0])
    train_set, test_set = data.load_arrays(args.dataset)
    announce("a single GPU", args, train_set, devices.describe(args.gpu))
    train(args, train_set, test_set)


if __name__ == "__main__":
    main()
