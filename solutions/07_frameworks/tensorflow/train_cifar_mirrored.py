"""Train with TensorFlow's MirroredStrategy: one process with a replica of the network on each GPU. Options: python
train_cifar_mirrored.py --help"""

import time

from handson.tensorflow import UNTUNED, devices, reports
from handson.tensorflow.model import get_model

import keras
import tensorflow as tf

from handson.training import data, options, results
from handson.training.banner import announce


def train(args, train_set, test_set):
    strategy = tf.distribute.MirroredStrategy(devices.use(args.gpu))
    devices.check_batches(len(train_set), args.batchsize, strategy.num_replicas_in_sync)
    batches = tf.data.Dataset.from_tensor_slices((train_set.images, train_set.labels)).with_options(UNTUNED)
    batches = batches.shuffle(len(train_set), seed=args.seed).batch(args.batchsize * strategy.num_replicas_in_sync)

    keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        model = get_model(args.model, train_set.images.shape[1:], args.size, len(train_set.classes))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(args.lr, momentum=0.9), loss, metrics=["accuracy"])
    table = reports.Table(reports.evaluator(model, test_set, args.batchsize))

    start = time.perf_counter()
    model.fit(batches, epochs=args.epoch, verbose=0, callbacks=[table])
    seconds = time.perf_counter() - start

    images = len(train_set) * args.epoch
    results.report(args, images / seconds, images, seconds, table.log, table.seconds)


def main():
    args = options.parse(gpus=[0, 1])
    train_set, test_set = data.load_arrays(args.dataset)
    announce("multiple GPUs", args, train_set, devices.describe(args.gpu))
    train(args, train_set, test_set)


if __name__ == "__main__":
    main()
