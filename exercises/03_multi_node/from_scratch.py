"""Data-parallel training from an empty file: torchrun --standalone --nproc-per-node 2 from_scratch.py

torchrun starts a process for each rank. In its environment are MASTER_ADDR and MASTER_PORT (where the ranks meet),
RANK, WORLD_SIZE and LOCAL_RANK (the rank on its node). On each rank, `main()`

- joins the process group,
- chooses its GPU: devices.use(id) returns the device; ids count from 0 on each node,
- takes its part of the training set, in batches of BATCHSIZE and, in every epoch, in another order:
  data.load("digits") returns a training and a test set, data.enlarge(images, SIZE) what the network takes,
- trains a ConvNet() for EPOCHS epochs by SGD with the rate RATE, the gradients averaged over the ranks
  (with momentum or without, but not with Nesterov's),
- prints the images/s of all ranks if it is rank 0,
- leaves the process group.
"""

from handson.pytorch import devices
from handson.pytorch.model import ConvNet
from handson.training import data

EPOCHS, BATCHSIZE, RATE, SIZE = 2, 32, 0.02, 64

# PUT YOUR CODE: the imports that you need, and `main()` as described at the top
raise NotImplementedError("PUT YOUR CODE: from_scratch")

if __name__ == "__main__":
    main()
