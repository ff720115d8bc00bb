"""Train with Lightning, which starts a process for each GPU, or takes those of mpiexec: python train_cifar_lightning.py --help"""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from handson.lightning import L, reports
from handson.pytorch import devices
from handson.pytorch.batches import EpochBatches, part_length
from handson.pytorch.extensions import accuracy
from handson.pytorch.model import ConvNet
from handson.pytorch.steps import sgd
from handson.training import data, options


class Training(L.LightningModule):
    """What Lightning calls, in the order in which it does so; there is no loop."""

    def __init__(self, args, train_set, test_set):
        super().__init__()
        self.args, self.sets = args, (train_set, test_set)
        torch.manual_seed(args.seed)
        self.model = ConvNet(len(train_set.classes))

    def configure_optimizers(self):
        return sgd(self.model, self.args)

    def train_dataloader(self):
        train_set, rank, size = self.sets[0], self.trainer.global_rank, self.trainer.world_size
        lengths = [part_length(len(train_set), size, other) for other in range(size)]
        shard = torch.randperm(len(train_set), generator=torch.Generator().manual_seed(self.args.seed)).split(lengths)[rank]
        self.batches = EpochBatches(lengths, rank, self.args.batchsize, self.args.seed)
        return DataLoader(torch.utils.data.Subset(train_set, shard.tolist()), batch_sampler=self.batches)

    def val_dataloader(self):
        mine = range(self.trainer.global_rank, len(self.sets[1]), self.trainer.world_size)
        return DataLoader(torch.utils.data.Subset(self.sets[1], mine), self.args.batchsize)

    def on_train_epoch_start(self):
        self.batches.set_epoch(self.current_epoch)

    def training_step(self, batch, number):
        images, labels = batch
        outputs = self.model(data.enlarge(images, self.args.size))
        loss = F.cross_entropy(outputs, labels, reduction="sum") * self.trainer.world_size / self.batches.totals[number]
        self.log_dict({"main/loss": loss.detach(), "main/accuracy": accuracy(outputs, labels)}, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, number):
        images, labels = batch
        outputs = self.model(data.enlarge(images, self.args.size))
        loss, correct = F.cross_entropy(outputs, labels, reduction="sum"), (outputs.argmax(dim=1) == labels).float().sum()
        sums = {"validation/main/loss": loss / len(self.sets[1]), "validation/main/accuracy": correct / len(self.sets[1])}
        self.log_dict(sums, on_epoch=True, reduce_fx="sum", sync_dist=True)


def main():
    args = options.parse(gpus=devices.first(2))
    train_set, test_set = data.load(args.dataset)
    trainer = reports.trainer(args, strategy="ddp", use_distributed_sampler=False, callbacks=[reports.Report(args, len(train_set) * args.epoch)])
    reports.announce(trainer, args, train_set)
    trainer.fit(Training(args, train_set, test_set))


if __name__ == "__main__":
    main()
