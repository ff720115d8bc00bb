"""Data-parallel training from an empty file: torchrun --standalone --nproc-per-node 2 from_scratch.py

torchrun starts one process for each rank, and sets environment variables: MASTER_ADDR and MASTER_PORT (where the
ranks find each other), RANK, WORLD_SIZE, and LOCAL_RANK (the rank's number on its node). On each rank, `main()`

- joins the process group,
- chooses the rank's GPU: devices.use(id) returns the device, and ids count from 0 on each node,
- loads the data: data.load("digits") returns a training set and a test set,
- uses the rank's own part of the training set, in batches of BATCHSIZE images, in a new order in every epoch,
- enlarges the images of each batch for the network: data.enlarge(images, SIZE),
- trains a ConvNet() for EPOCHS epochs with SGD and the learning rate RATE, and averages the gradients over the ranks
  (SGD may have momentum, but not Nesterov momentum),
- prints the images/s of all ranks together if it is rank 0,
- leaves the process group.
"""

from handson.pytorch import devices
from handson.pytorch.model import ConvNet
from handson.training import data

EPOCHS, BATCHSIZE, RATE, SIZE = 2, 32, 0.02, 64

### BEGIN SOLUTION from_scratch:
### write the imports that you need, and `main()` as described at the top
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def main():
    device = devices.use(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    train_set, _ = data.load("digits")
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, BATCHSIZE, sampler=sampler)
    model = DistributedDataParallel(ConvNet().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)

    start = time.perf_counter()
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            images, labels = data.enlarge(images.to(device), SIZE), labels.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
    loss.item()  # wait until the GPU has finished the last step
    seconds = time.perf_counter() - start

    if dist.get_rank() == 0:
        print(f"{EPOCHS * len(train_set) / seconds:.1f} images/s on {dist.get_world_size()} GPU(s)")
    dist.destroy_process_group()


### END SOLUTION

if __name__ == "__main__":
    main()
