"""Train with the CNTK interface: mpiexec -n 2 python train_cntk.py --help"""

import time

import torch

from handson import cntk
from handson.cntk import workers
from handson.pytorch.model import SmallNet
from handson.pytorch.streams import ImageFiles
from handson.training import map_files, options, results
from handson.training.banner import announce

CLASSES = 10


def create_source(map_file, classes, randomize, max_samples):
    """Return a stream of images and labels, which are read from the files of a map file during training."""
    # PUT YOUR CODE: return cntk.MinibatchSource(deserializer, randomize=..., max_samples=...), where the
    # deserializer is cntk.ImageDeserializer(map_file, streams). Set the streams to
    # cntk.StreamDefs(features=..., labels=...). Use cntk.StreamDef(field="image") for `features`, and a
    # StreamDef with field="label" and shape=classes for `labels`
    raise NotImplementedError("PUT YOUR CODE: source")


def create_learner(parameters, args):
    """Return a distributed learner that wraps SGD with momentum on each worker."""
    local = cntk.momentum_sgd(parameters, args.lr, momentum=0.9, unit_gain=False)
    # PUT YOUR CODE: return a distributed learner that wraps `local`. If args.block_size is not 0, use
    # cntk.block_momentum_distributed_learner(local, block_size=..., distributed_after=...). Otherwise use
    # cntk.data_parallel_distributed_learner(local, num_quantization_bits=..., distributed_after=...) with
    # args.bits. Both start to communicate after args.warm_up samples
    raise NotImplementedError("PUT YOUR CODE: learner")


def run_session(trainer, source, test_source, args):
    """Train with CNTK's training session, which contains the whole loop."""
    streams = {"features": source.streams.features, "labels": source.streams.labels}
    checkpoint = args.out / "model.ckpt"
    # PUT YOUR CODE: create cntk.training_session(trainer=..., mb_source=..., mb_size=...,
    # model_inputs_to_streams=..., progress_frequency=..., checkpoint_config=..., test_config=...), and
    # call its train(). Set mb_size to the samples of all workers together: args.batchsize for each. Print
    # progress after every args.samples samples. Write a checkpoint equally often, with
    # cntk.CheckpointConfig(filename=..., frequency=..., restore=...); resume from it if args.restore is
    # set. Test with cntk.TestConfig(test_source)
    raise NotImplementedError("PUT YOUR CODE: session")


def run_loop(trainer, source, minibatch_size):
    """Run the same loop by hand. minibatch_size: samples of all workers together; the warm start, if any, is over."""
    streams = {"features": source.streams.features, "labels": source.streams.labels}
    # PUT YOUR CODE: loop until the source returns an empty minibatch. Get this worker's part of the next
    # minibatch with source.next_minibatch(minibatch_size, streams, num_data_partitions=...,
    # partition_index=...). Train on it with trainer.train_minibatch(part). cntk.Communicator has
    # num_workers() and rank()
    raise NotImplementedError("PUT YOUR CODE: loop")


def train(comm, args):
    folder = map_files.folder_of(args.dataset)
    images, test_images = ImageFiles(folder / "train.txt", CLASSES), ImageFiles(folder / "test.txt", CLASSES)
    args.samples = len(images)
    announce("multiple nodes", args, images, comm.devices, comm)
    source = create_source(images.path, CLASSES, randomize=True, max_samples=args.epoch * args.samples)
    test_source = create_source(test_images.path, CLASSES, randomize=False, max_samples=len(test_images))

    torch.manual_seed(args.seed)
    model = SmallNet(images.shape, CLASSES)
    criterion = cntk.cross_entropy_with_softmax, cntk.classification_error
    printer = cntk.ProgressPrinter(num_epochs=args.epoch)
    trainer = cntk.Trainer(model, criterion, create_learner(model.parameters(), args), printer)

    start = time.perf_counter()
    if args.by_hand:
        run_loop(trainer, source, args.batchsize * comm.size)
    else:
        run_session(trainer, source, test_source, args)
    seconds = time.perf_counter() - start
    trainer.summarize_training_progress()
    if cntk.Communicator.is_main() and printer.samples:
        results.report(args, printer.samples / seconds, printer.samples, seconds, printer.log)


def main():
    args = options.parse(gpus=None, add_options=workers.add_options)
    train(workers.meet(args), args)
    cntk.Communicator.finalize()


if __name__ == "__main__":
    main()
