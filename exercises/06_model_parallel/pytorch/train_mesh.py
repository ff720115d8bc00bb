"""Train with the functions of products.py and mesh.py, on two nodes with two GPUs each: mpiexec -n 4 -hostfile NODES
python train_mesh.py --help"""

import mesh as of_ranks
import products
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader

from handson.pytorch import devices, transformer_runs
from handson.pytorch.communicator import meet
from handson.pytorch.products import ranks_of_a_node
from handson.pytorch.workers import TIMEOUT
from handson.training import data, options
from handson.training.banner import announce

METHODS = {  # name -> what the ranks of one node do together; what is left to do, the nodes do
    "tensor-inside": "tensor",
    "data-inside": "data",
}


def train(comm, args, method, train_set):
    device = devices.use(args.gpu[comm.intra_rank])
    mesh = of_ranks.make_mesh(device.type, comm.inter_size, ranks_of_a_node(comm), METHODS[method])
    sampler = of_ranks.make_sampler(train_set, mesh, args.seed)
    train_loader = DataLoader(train_set, args.batchsize, sampler=sampler)

    whole = transformer_runs.network(args, len(train_set.classes))
    model = products.split(whole, mesh.get_group("tensor")).to(device)
    replica = of_ranks.make_replica(model, mesh)
    of_ranks.seed_dropout(args.seed, comm.rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    progress = transformer_runs.Progress(comm, method)
    for epoch in range(args.epoch):
        sampler.set_epoch(epoch)
        for images, labels in transformer_runs.batches(train_loader, args, device):
            optimizer.zero_grad()
            loss = F.cross_entropy(replica(images), labels)
            loss.backward()
            optimizer.step()
        progress.add(loss.detach())
    progress.report(args, len(train_set) * args.epoch)


def main():
    args = options.parse(gpus=None, add_options=transformer_runs.add_mesh_options(METHODS))
    with meet(args) as comm:  # MPI or torchrun says which rank this is, and where the others are
        dist.init_process_group(comm.backend, store=comm.store, rank=comm.rank, world_size=comm.size, timeout=TIMEOUT)
        train_set, _ = data.load(args.dataset)
        announce("multiple nodes", args, train_set, comm.devices, comm)
        for method, seed in transformer_runs.runs(args):
            train(comm, transformer_runs.one_run(args, method, seed), method, train_set)


if __name__ == "__main__":
    main()
