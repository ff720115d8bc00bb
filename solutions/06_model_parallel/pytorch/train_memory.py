"""Train a transformer on one GPU in several ways that need less memory: python train_memory.py --method all
--gpu-memory unlimited"""

import torch
import torch.nn.functional as F
from save_memory import accumulate, checkpointed
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from handson.errors import TrackError
from handson.pytorch import devices, transformer_runs


def torch_checkpoint(model, images):
    """PyTorch's own: it also repeats random numbers, such as those of dropout."""
    tokens = model.patches(images)
    for block in model.blocks:
        tokens = checkpoint(block, tokens, use_reentrant=False)
    return model.head(tokens)


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


if __name__ == "__main__":
    transformer_runs.train_each(train, METHODS, ranks=1)
