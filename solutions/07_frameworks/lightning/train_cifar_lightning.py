"""Train with Lightning, which starts a process for each GPU, or takes those of mpiexec: python train_cifar_lightning.py
--help"""

from fractions import Fraction

from handson.lightning import L, reports

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Subset, random_split

from handson.pytorch.batches import EpochBatches
from handson.pytorch.extensions import accuracy
from handson.pytorch.model import ConvNet
from handson.training import data, options


class Training(L.LightningModule):
    """What Lightning calls, in the order in which it does so; there is no loop."""

    def __init__(self, args, train_set, test_set):
        super().__init__()
        self.args, self.sets = args, (train_set, test_set)
        torch.manual_seed(args.seed)
        self.model = ConvNet(len(train_set.classes))

    def configure_optimizers(self):
        return torch.optim.SGD(self.model.parameters(), lr=self.args.lr, momentum=0.9)

    def train_dataloader(self):
        train_set = self.sets[0]
        ### BEGIN SOLUTION shard:
        ### as in the DDP script, `shard`, a random part of `train_set` for this rank (by
        ### self.args.seed), and `lengths`, of all ranks' shards; self.trainer knows which rank this
        ### is
        rank, size = self.trainer.global_rank, self.trainer.world_size
        shards = random_split(train_set, [Fraction(1, size)] * size, torch.Generator().manual_seed(self.args.seed))
        shard, lengths = shards[rank], [len(other) for other in shards]
        ### END SOLUTION
        self.batches = EpochBatches(lengths, self.trainer.global_rank, self.args.batchsize, self.args.seed)
        return DataLoader(shard, batch_sampler=self.batches)

    def val_dataloader(self):
        mine = range(self.trainer.global_rank, len(self.sets[1]), self.trainer.world_size)
        return DataLoader(Subset(self.sets[1], mine), self.args.batchsize)

    def on_train_epoch_start(self):
        self.batches.set_epoch(self.current_epoch)

    def training_step(self, batch, number):
        images, labels = batch
        outputs = self.model(data.enlarge(images, self.args.size))
        total = self.batches.totals[number]  # images of this step, on all ranks
        ### BEGIN SOLUTION average:
        ### `loss`, of which Lightning goes backward: the mean of the ranks' gradients, which DDP
        ### takes, must be that of the mean loss of the step's `total` images
        loss = F.cross_entropy(outputs, labels, reduction="sum") * self.trainer.world_size / total
        ### END SOLUTION
        # Report takes the means; self.log would add milliseconds to each step
        return {"loss": loss, "accuracy": accuracy(outputs, labels)}

    def validation_step(self, batch, number):
        images, labels = batch
        outputs = self.model(data.enlarge(images, self.args.size))
        loss, correct = (
            F.cross_entropy(outputs, labels, reduction="sum"),
            (outputs.argmax(dim=1) == labels).float().sum(),
        )
        ### BEGIN SOLUTION validation:
        ### log "validation/main/loss" and "validation/main/accuracy", so that after an epoch each
        ### rank has the means over all test images (self.sets[1]), of which this rank has a part;
        ### `loss` and `correct` are sums over a batch
        sums = {
            "validation/main/loss": loss / len(self.sets[1]),
            "validation/main/accuracy": correct / len(self.sets[1]),
        }
        self.log_dict(sums, reduce_fx="sum", sync_dist=True)
        ### END SOLUTION


def main():
    args = options.parse(gpus=None)  # a GPU for each rank
    train_set, test_set = data.load(args.dataset)
    ddp = L.pytorch.strategies.DDPStrategy(broadcast_buffers=False)  # Report averages them
    trainer = reports.trainer(
        args, strategy=ddp, use_distributed_sampler=False, callbacks=[reports.Report(args, train_set)]
    )
    trainer.fit(Training(args, train_set, test_set))


if __name__ == "__main__":
    main()
