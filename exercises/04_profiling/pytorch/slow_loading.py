"""Train on several GPUs with images that are stored as compressed files: why so slow? Options: python slow_loading.py --help"""

import time
import zlib
from dataclasses import replace

import numpy
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, default_collate, random_split

from handson.pytorch import devices, workers
from handson.pytorch.batches import EpochBatches
from handson.pytorch.model import ConvNet
from handson.training import data, options, results
from handson.training.banner import announce

IMAGES = 200  # of the training set; the others would only take time to compress


def compress(image, size):
    """An image as the bytes of a file; like photographs, larger than what the network gets: 2 `size` x 2 `size` pixels in three colours."""
    large = data.enlarge(image[None], 2 * size)[0]
    return zlib.compress((255 * large).to(torch.uint8).numpy().tobytes(), level=1)


def decode(file):
    """The image (3, size, size) in the bytes of a file, with mean 0 and standard deviation 1."""
    pixels = torch.frombuffer(bytearray(zlib.decompress(file)), dtype=torch.uint8).float()
    side = round((len(pixels) / 3) ** 0.5)
    image = F.avg_pool2d(pixels.view(3, side, side), 2)
    return (image - image.mean()) / image.std()


def train(comm, args, train_set, test_set):
    device = devices.use(args.gpu[comm.intra_rank])
    shards = random_split(train_set, [1 / comm.size] * comm.size, torch.Generator().manual_seed(args.seed))
    batches = EpochBatches([len(shard) for shard in shards], comm.rank, args.batchsize, args.seed)
    # PUT YOUR CODE: `train_loader`: decode every image of the shard once, not once in every epoch

    def collate(batch):
        return default_collate([(decode(file), label) for file, label in batch])

    train_loader = DataLoader(shards[comm.rank], batch_sampler=batches, collate_fn=collate)

    torch.manual_seed(args.seed)
    model = ConvNet(len(train_set.classes)).to(device)
    replica = DistributedDataParallel(model, broadcast_buffers=False, gradient_as_bucket_view=True, static_graph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    if comm.rank == 0:
        print("epoch  main/loss  elapsed_time")
    start = time.perf_counter()
    for epoch in range(args.epoch):
        batches.set_epoch(epoch)
        for (images, labels), total in zip(train_loader, batches.totals):
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(replica(images), labels, reduction="sum") * comm.size / total
            loss.backward()
            optimizer.step()
        if comm.rank == 0:
            print(f"{epoch + 1:<6} {loss.item():<9.4f}  {time.perf_counter() - start:.2f}")
    seconds = time.perf_counter() - start

    if comm.rank == 0:
        images = len(train_set) * args.epoch
        results.report(args, images / seconds, images, seconds, 0, [], comm.size, comm.nodes)


def main():
    args = options.parse(gpus=devices.first(2))
    train_set, test_set = data.load(args.dataset)
    files = [compress(image, args.size) for image in train_set.images[:IMAGES]]
    train_set = replace(train_set, images=numpy.array(files, dtype=object), labels=train_set.labels[:IMAGES])
    announce("multiple GPUs", args, train_set, devices.describe(args.gpu))
    workers.start(train, args, train_set, test_set)


if __name__ == "__main__":
    main()
