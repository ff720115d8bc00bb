"""Train with the functions of products.py and mesh.py, on two nodes with two GPUs each: mpiexec -n 4 -hostfile NODES
python train_mesh.py --help"""

import products
import torch
import torch.nn.functional as F
from mesh import make_mesh, make_replica, make_sampler, seed_dropout
from torch.utils.data import DataLoader

from handson.pytorch import devices, transformer_runs
from handson.pytorch.products import ranks_of_a_node
from handson.training import transformer_options

METHODS = {  # name -> the dimension that the ranks of one node form; the nodes form the other dimension
    "tensor-inside": "tensor",
    "data-inside": "data",
}


def train(comm, args, method, train_set):
    device = devices.use(args.gpu[comm.intra_rank])
    mesh = make_mesh(device.type, comm.inter_size, ranks_of_a_node(comm), METHODS[method])
    sampler = make_sampler(train_set, mesh, args.seed)
    train_loader = DataLoader(train_set, args.batchsize, sampler=sampler)

    whole = transformer_runs.network(args, len(train_set.classes))
    model = products.split(whole, mesh.get_group("tensor")).to(device)
    replica = make_replica(model, mesh)
    seed_dropout(args.seed, comm.rank)
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


if __name__ == "__main__":
    transformer_runs.train_each(train, METHODS, transformer_options.add_mesh)
