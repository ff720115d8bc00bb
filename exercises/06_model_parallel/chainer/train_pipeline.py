"""Train a network that is split between its layers; each rank is a stage: mpiexec -n 2 python train_pipeline.py
--help"""

import handson.chainer  # before chainer: lets it run on today's NumPy
from handson.chainer import chainer_method_runs, devices, stages
from handson.chainer.communicators import create_communicator

import chain_list
import chainer
import numpy

from handson.training import data, options, transformer_options
from handson.training.all_ranks import all_ranks_end_together
from handson.training.banner import announce

METHODS = ("naive", "gpipe")  # 1F1B would deadlock: in ChainerMN, `send` waits until the message is received


def train(comm, args, method, train_set):
    device = devices.use(args.gpu[comm.intra_rank])
    micro_batches = 1 if method == "naive" else args.micro_batches
    stages.check(comm, args, micro_batches)

    part = stages.part(comm, args, len(train_set.classes))
    part.to_device(device)
    stage = chain_list.make_stage(comm, part) if method == "naive" else part
    optimizer = chainer.optimizers.Adam(args.lr).setup(part)

    progress = stages.Progress(comm, method)
    steps, batches = len(train_set) // args.batchsize, stages.batches(train_set, args, device)
    for epoch in range(args.epoch):
        for step in range(steps):
            images, labels = next(batches)
            part.cleargrads()
            if method == "naive":
                loss = chain_list.naive_step(comm, stage, images, labels)
            else:
                loss = chain_list.gpipe_step(
                    comm, part, numpy.split(images, micro_batches), numpy.split(labels, micro_batches)
                )
            optimizer.update()
        progress.add(loss)
    progress.report(args, steps * args.batchsize * args.epoch)


def main():
    args = options.parse(gpus=None, add_options=transformer_options.add_pipeline(METHODS))
    with all_ranks_end_together():
        comm = create_communicator("naive")
        device_words = devices.settle(comm, args)
        train_set, _ = data.load_arrays(args.dataset)
        announce("multiple nodes", args, train_set, device_words, comm)
        for method, seed in chainer_method_runs.runs(args):
            train(comm, chainer_method_runs.one_run(args, method, seed), method, train_set)


if __name__ == "__main__":
    main()
