"""Train a network on several GPUs of one machine, a process for each. Options: python train_cifar_multi_gpu.py
--help"""

import time

import handson.chainer  # before chainer: lets it run on today's NumPy
from handson.chainer import devices
from handson.chainer.data import Enlarge, Shuffle
from handson.chainer.model import get_model
from handson.chainer.reports import TimedEvaluator, add_reports, resume
from handson.chainer.updaters import DESCRIPTION, MultiprocessParallelUpdater

import chainer
import chainer.links as L
import numpy
from chainer.datasets import split_dataset_n_random
from chainer.iterators import SerialIterator
from chainer.training import Trainer

from handson.training import data, options, results
from handson.training.banner import announce


def train(args, train_set, test_set):
    # PUT YOUR CODE: set `gpus` to a dictionary from names to GPU ids: "main" for the first id in
    # args.gpu, then "gpu1", "gpu2", ...
    raise NotImplementedError("PUT YOUR CODE: devices")
    print(gpus)

    test_iterator = SerialIterator(test_set, args.batchsize, repeat=False, shuffle=False)
    # PUT YOUR CODE: set `parts` to parts of the training set: one for each GPU, all of the same length,
    # split at random with args.seed. Set `train_iterators` to a list with an iterator over each part, as
    # in the single-GPU script
    raise NotImplementedError("PUT YOUR CODE: iterators")

    numpy.random.seed(args.seed)
    model = L.Classifier(get_model(args.model, len(train_set.classes)))
    # PUT YOUR CODE: set `optimizer` to momentum SGD with learning rate args.lr and momentum 0.9, and set
    # it up for the model
    raise NotImplementedError("PUT YOUR CODE: optimizer")

    convert = Enlarge(args.size)
    # PUT YOUR CODE: set `updater` to a MultiprocessParallelUpdater: it is like the StandardUpdater of the
    # single-GPU script, but it takes all iterators and all devices
    raise NotImplementedError("PUT YOUR CODE: updater")
    trainer = Trainer(updater, (args.epoch, "epoch"), out=args.out)
    evaluator = TimedEvaluator(test_iterator, model, converter=convert, device=devices.main(args.gpu))
    add_reports(trainer, evaluator)
    first_epoch = resume(trainer, args.resume)

    start = time.perf_counter()
    trainer.run(show_loop_exception_msg=False)
    seconds = time.perf_counter() - start

    # PUT YOUR CODE: set `images` to the number of images that the network trained on since `first_epoch`
    # (in a resumed run, this is not 0), and `throughput` to the images per second
    raise NotImplementedError("PUT YOUR CODE: throughput")
    results.finish(args, trainer, evaluator, throughput, images, seconds)


def main():
    args = options.parse(gpus=[0, 1])
    train_set, test_set = data.load_arrays(args.dataset)
    announce("multiple GPUs", args, train_set, devices.describe(args.gpu))
    print(DESCRIPTION)
    train(args, train_set, test_set)


if __name__ == "__main__":
    main()
