"""Train with 1-bit gradients, and go on after a node has died: torchrun --nproc-per-node 2 --max-restarts 3
train_restarts.py --help"""

import time

import hooks
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from handson.pytorch import checkpoints, devices, pytorch_method_runs
from handson.pytorch.communicator import meet
from handson.pytorch.model import SmallNet
from handson.pytorch.streams import ImageFiles, Partition
from handson.pytorch.workers import TIMEOUT
from handson.training import map_files, options, results
from handson.training.banner import LossTable, announce

CLASSES = 10


def state_of(model, optimizer, residuals, batches):
    """All that the next step depends on, as two dictionaries: what is the same on all ranks, and what each rank has for
    itself."""
    # PUT YOUR CODE: `shared`, with "model", "optimizer" and "batches" (each has a state_dict()), and
    # `own`, with "residuals" and "random" (torch.get_rng_state())
    raise NotImplementedError("PUT YOUR CODE: state")
    return shared, own


def restore(shared, own, model, optimizer, residuals, batches):
    """Put everything back to where it was when `state_of` returned `shared` and `own`. residuals: {} so far."""
    # PUT YOUR CODE: put back all five: load_state_dict(...) for three of them, torch.set_rng_state(...)
    # for the random numbers; the hook keeps `residuals`, so fill this dictionary
    raise NotImplementedError("PUT YOUR CODE: restore")


def train(comm, args, files):
    device = devices.use(args.gpu[comm.intra_rank])
    batches = Partition(len(files), args.batchsize * comm.size, comm.size, comm.rank, args.seed)
    # else every new iterator of the loader, also that after a restart, would draw one of the noise's numbers
    own = torch.Generator()
    train_loader = DataLoader(files, batch_sampler=batches, generator=own)

    torch.manual_seed(args.seed)
    model = SmallNet(files.shape, CLASSES).to(device)
    # Without find_unused_parameters, it fills its buckets anew after the first step: the residuals of a bucket would
    # not fit after a restart.
    replica = DistributedDataParallel(model, find_unused_parameters=True)
    pytorch_method_runs.refuse_nan(comm, model)
    residuals = {}
    replica.register_comm_hook(residuals, hooks.one_bit)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    torch.manual_seed(args.seed + 1 + comm.rank)  # each rank has noise of its own

    checkpoint = args.out / "checkpoint.pt"
    if found := checkpoints.load(checkpoint, comm):
        restore(*found, model, optimizer, residuals, batches)
        checkpoints.check_residuals(residuals, model, checkpoint, comm)
        checkpoints.say_where(batches, checkpoint, comm)

    table, start, trained, step = LossTable(comm.rank), time.perf_counter(), 0, 0
    while batches.epoch < args.epoch:
        for images, labels in train_loader:
            images = 255 * images.to(device) + args.noise * torch.randn(images.shape).to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(replica(images), labels.to(device), reduction="sum") * comm.size / batches.total
            loss.backward()
            optimizer.step()
            trained, step = trained + batches.total, step + 1
            if step % args.every == 0:
                checkpoints.save(checkpoint, *state_of(model, optimizer, residuals, batches), comm)
        table.add(loss.detach())
    checkpoints.save(checkpoint, *state_of(model, optimizer, residuals, batches), comm)
    seconds = time.perf_counter() - start
    if comm.rank == 0 and trained:
        results.report(args, trained / seconds, trained, seconds, table.log)


def main():
    args = options.parse(gpus=None, add_options=checkpoints.add_options)
    with meet(args) as comm:
        dist.init_process_group(comm.backend, store=comm.store, rank=comm.rank, world_size=comm.size, timeout=TIMEOUT)
        files = ImageFiles(map_files.folder_of(args.dataset) / "train.txt", CLASSES)
        announce("multiple nodes", args, files, comm.devices, comm)
        train(comm, args, files)


if __name__ == "__main__":
    main()
