"""Train a transformer on one GPU with several methods that need less memory. Example: python train_memory.py --method
all --gpu-memory unlimited"""

from functools import partial

import torch
import torch.nn.functional as F
from save_memory import accumulate, checkpointed
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from torch.utils.data import DataLoader

from handson.errors import TrackError
from handson.pytorch import devices, transformer_runs

KEPT = [  # operations that take long: selective checkpointing keeps their results and recomputes all others
    torch.ops.aten.addmm.default,  # a linear layer
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,  # on GPUs, also the next one
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
]


def torch_checkpoint(model, images, every=1, **options):
    """Compute the scores with PyTorch's `checkpoint` around each block, or around one of `every` blocks. Unlike ours,
    it also repeats random numbers, such as those of dropout."""
    tokens = model.patches(images)
    for number, block in enumerate(model.blocks):
        tokens = block(tokens) if number % every else checkpoint(block, tokens, use_reentrant=False, **options)
    return model.head(tokens)


selected = partial(create_selective_checkpoint_contexts, KEPT)
METHODS = {  # name -> (number of micro-batches, forward)
    "plain": (1, lambda model, images: model(images)),
    "accumulate-2": (2, lambda model, images: model(images)),
    "accumulate-4": (4, lambda model, images: model(images)),
    "accumulate-8": (8, lambda model, images: model(images)),
    "checkpoint": (1, checkpointed),
    "torch-checkpoint": (1, torch_checkpoint),
    "checkpoint-every-2nd": (1, partial(torch_checkpoint, every=2)),
    "checkpoint-selected": (1, partial(torch_checkpoint, context_fn=selected)),
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
            f"{args.batchsize} images are too few for {micro_batches} micro-batches: choose a larger --batchsize"
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
