"""Train with 1-bit gradients, and resume after a node has died, even with another number of ranks: torchrun
--nproc-per-node 2 --max-restarts 3 train_restarts.py --help"""

import os
import time

import hooks
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.utils.data import DataLoader

from handson.pytorch import checkpoints, devices
from handson.pytorch.communicator import announce
from handson.pytorch.messages import average_gradients
from handson.pytorch.model import SmallNet
from handson.pytorch.pytorch_method_runs import refuse_nan
from handson.pytorch.streams import ImageFiles, Partition
from handson.training import map_files, options, results
from handson.training.banner import LossTable

CLASSES = 10


def state_of(model, optimizer, residuals, batches):
    """Return everything that the next step depends on, as two dictionaries: the state that is equal on all ranks, and
    the state of this rank."""
    # PUT YOUR CODE: set `shared` to a dictionary with "model", "optimizer" and "batches": the
    # state_dict() of each. Set `own` to a dictionary with "residuals" and "random", which is
    # torch.get_rng_state()
    raise NotImplementedError("PUT YOUR CODE: state")
    return shared, own


def restore(shared, own, model, optimizer, residuals, batches):
    """Restore the state in which `state_of` returned `shared` and `own`. residuals: an empty dictionary."""
    # PUT YOUR CODE: restore all five parts of the state. Call load_state_dict(...) of model, optimizer
    # and batches. Set the random numbers with torch.set_rng_state(...). Fill the dictionary `residuals`,
    # because the hook keeps this object
    raise NotImplementedError("PUT YOUR CODE: restore")


def save(folder, shared, own, batches):
    """Write a checkpoint, to which each rank adds its part. All ranks must call this function."""
    state = {"shared": shared, f"rank {dist.get_rank()}": own}
    dcp.save(state, checkpoint_id=checkpoints.path(folder, batches))
    checkpoints.remove_old(folder)


def train(rank, args, files):
    device, size = devices.use(args.gpu[int(os.environ["LOCAL_RANK"])]), dist.get_world_size()
    batches = Partition(len(files), args.batchsize * size, size, rank, args.seed)
    # with torch's generator, each new iterator of the loader would draw one of the noise's random numbers
    train_loader = DataLoader(files, batch_sampler=batches, generator=torch.Generator())

    torch.manual_seed(args.seed)
    model = SmallNet(files.shape, CLASSES).to(device)
    refuse_nan(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    residuals = {}
    torch.manual_seed(args.seed + 1 + rank)  # each rank has its own noise

    folder = args.out / "checkpoints"
    if found := checkpoints.load(folder, device):
        restore(*found, model, optimizer, residuals, batches)
        checkpoints.say_where(batches)

    table, start, trained, step = LossTable(rank, batches.epoch), time.perf_counter(), 0, 0
    while batches.epoch < args.epoch:
        for images, labels in train_loader:
            images = 255 * images.to(device) + args.noise * torch.randn(images.shape).to(device)
            optimizer.zero_grad()
            losses = F.cross_entropy(model(images), labels.to(device), reduction="sum")
            loss = losses * size / batches.total
            loss.backward()
            average_gradients(model, hooks.one_bit, residuals)
            optimizer.step()
            trained += batches.total
            step += 1
            if step % args.every == 0 or batches.epoch == args.epoch:
                save(folder, *state_of(model, optimizer, residuals, batches), batches)
        table.add(loss.detach())
    seconds = time.perf_counter() - start
    if rank == 0 and trained:
        results.report(args, trained / seconds, trained, seconds, table.log)


def main():
    args = options.parse(gpus=devices.first, add_options=checkpoints.add_options)
    dist.init_process_group(devices.backend(args.gpu))  # reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
    files = ImageFiles(map_files.folder_of(args.dataset) / "train.txt", CLASSES)
    announce("multiple nodes", args, files)
    train(dist.get_rank(), args, files)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
