"""Train with Lightning, which starts a process for each GPU, or uses the processes of mpiexec: python
train_cifar_lightning.py --help"""

from handson.lightning import reports

import lightning as L
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from handson.pytorch.model import get_model
from handson.training import data, options


class Training(L.LightningModule):
    """The methods that Lightning calls, in the order of the calls. There is no loop."""

    def __init__(self, args, train_set, test_set):
        super().__init__()
        self.args, self.train_set, self.test_set = args, train_set, test_set
        self.model = get_model(args.model, len(train_set.classes))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.args.lr, momentum=0.9)

    def train_dataloader(self):
        # PUT YOUR CODE: return a DataLoader of self.train_set with batches of self.args.batchsize images, in
        # a new order in each epoch. If there are several ranks, Lightning gives it a DistributedSampler
        raise NotImplementedError("PUT YOUR CODE: loader")

    def val_dataloader(self):
        return DataLoader(self.test_set, self.args.batchsize)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        images = data.enlarge(images, self.args.size)
        # PUT YOUR CODE: compute `outputs` and the mean `loss` of this rank's images. Lightning runs backward
        # and the optimizer step with this loss
        raise NotImplementedError("PUT YOUR CODE: training_step")
        return {"loss": loss, "outputs": outputs.detach()}  # the callback Report reads both

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        outputs = self.model(data.enlarge(images, self.args.size))
        loss, accuracy = F.cross_entropy(outputs, labels), (outputs.argmax(dim=1) == labels).float().mean()
        # PUT YOUR CODE: log `loss` as "validation/main/loss" and `accuracy` as "validation/main/accuracy".
        # After an epoch, each rank must have the means over the images of all ranks. Lightning gives all
        # ranks the same number of images
        raise NotImplementedError("PUT YOUR CODE: validation")


def main():
    args = options.parse(gpus=None)  # one GPU per rank
    train_set, test_set = data.load(args.dataset)
    L.seed_everything(args.seed, verbose=False)
    report = reports.Report(args, train_set)
    trainer = L.Trainer(strategy="ddp", max_epochs=args.epoch, callbacks=[report], **reports.ranks(args))
    trainer.fit(Training(args, train_set, test_set))


if __name__ == "__main__":
    main()
