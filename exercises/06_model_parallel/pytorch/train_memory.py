"""Train a transformer on one GPU in several ways that need less memory: python train_memory.py --method all
--gpu-memory unlimited"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from save_memory import accumulate, checkpointed
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from handson.errors import TrackError
from handson.pytorch import devices, transformer_runs
from handson.pytorch.communicator import meet
from handson.pytorch.transformer import Block
from handson.pytorch.workers import TIMEOUT, stop_together
from handson.training import data, options
from handson.training.banner import announce


def torch_checkpoint(model, images):
    """PyTorch's own: it also repeats random numbers, such as those of dropout."""
    for layer in model:
        images = checkpoint(layer, images, use_reentrant=False) if isinstance(layer, Block) else layer(images)
    return images


METHODS = {  # name -> (micro-batches, forward)
    "plain": (1, lambda model, images: model(images)),
    "accumulate-2": (2, lambda model, images: model(images)),
    "accumulate-4": (4, lambda model, images: model(images)),
    "accumulate-8": (8, lambda model, images: model(images)),
    "checkpoint": (1, checkpointed),
    "torch-checkpoint": (1, torch_checkpoint),
    "checkpoint-and-accumulate-4": (4, checkpointed),
}


def train(comm, args, method, train_set):
    device = devices.use(args.gpu[comm.intra_rank])
    train_loader = DataLoader(
        train_set, args.batchsize, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(args.seed)
    )

    model = transformer_runs.network(args, len(train_set.classes)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    micro_batches, forward = METHODS[method]
    if micro_batches > args.batchsize:
        raise TrackError(
            f"{args.batchsize} images are too few for {micro_batches} micro-batches: take a larger --batchsize"
        )

    progress = transformer_runs.Progress(comm, method)
    for epoch in range(args.epoch):
        for images, labels in transformer_runs.batches(train_loader, args, device):
            optimizer.zero_grad()
            if micro_batches > 1:
                loss = accumulate(lambda images: forward(model, images), images, labels, micro_batches)
            else:
                loss = F.cross_entropy(forward(model, images), labels)
                loss.backward()
            optimizer.step()
        progress.add(loss.detach())
    progress.report(args, len(train_loader) * args.batchsize * args.epoch)


def main():
    args = options.parse(gpus=None, add_options=transformer_runs.add_options(METHODS))
    with meet(args) as comm:
        dist.init_process_group(comm.backend, store=comm.store, rank=comm.rank, world_size=comm.size, timeout=TIMEOUT)
        if comm.size > 1:
            stop_together("this training is for one rank: start it with mpiexec -n 1")
        train_set, _ = data.load(args.dataset)
        announce("one GPU", args, train_set, comm.devices, comm)
        for method, seed in transformer_runs.runs(args):
            train(comm, transformer_runs.one_run(args, method, seed), method, train_set)


if __name__ == "__main__":
    main()
