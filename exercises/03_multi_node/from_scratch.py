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

# PUT YOUR CODE: write the imports that you need, and `main()` as described at the top
raise NotImplementedError("PUT YOUR CODE: from_scratch")

if __name__ == "__main__":
    main()
