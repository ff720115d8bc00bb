"""The probes of the scripts for Lightning and Accelerate. Gaps run in a real Trainer, or with a real Accelerator, in a
process group. Both are imported only when a probe is called, because the probes of all units are also loaded without
the second environment."""

import os
import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from grader.probes.gap_code import GapCode, filled
from grader.probes.pytorch_scripts import function_of, join, seed_of
from grader.probes.script import options_of
from grader.sandbox.rank import StudentMistake
from grader.units.frameworks.frameworks_numbers import (
    BATCH,
    CLASSES,
    FEATURES,
    MOMENTUM,
    RATE,
    TESTS,
    evaluated,
    parts,
    start,
)
from handson.words import a_kind

LIGHTNING, ACCELERATE = (
    "07_frameworks/lightning/train_cifar_lightning.py",
    "07_frameworks/accelerate/train_cifar_accelerate.py",
)
NOTHING = {
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
    "logger": False,
    "num_sanity_val_steps": 0,
}


ONE_PASS = {"max_epochs": 1, "use_distributed_sampler": False}  # each rank gets its own batches


def linear(case):
    """Return a linear model in double precision with the first weights of the case: (N, FEATURES) to (N, CLASSES)."""
    weights, model = torch.from_numpy(start(case)), nn.Linear(FEATURES, CLASSES).double()
    with torch.no_grad():
        model.weight.copy_(weights[:-1].T)
        model.bias.copy_(weights[-1])
    return model


def weights_of(model):
    """Return the weights in the layout of `start`."""
    return numpy.vstack([model.weight.detach().numpy().T, model.bias.detach().numpy()])


def batches(case, rank):
    """Return [(images, labels)] of a rank, for each step in which it has images."""
    return tensors([parts(case, step)[rank] for step in range(case["steps"])])


def tensors(of_steps):
    """Convert [(images, labels)] from arrays to tensors, and leave out pairs without images."""
    return [
        (torch.from_numpy(images.astype("float64")), torch.from_numpy(labels.astype("int64")))
        for images, labels in of_steps
        if len(labels)
    ]


def given_batches(of_steps):
    """Return a DataLoader of a list of batches, because Lightning would interpret a list as several loaders."""
    return torch.utils.data.DataLoader(of_steps, batch_size=None)


class Numbered(torch.utils.data.TensorDataset):
    """A data set whose image i is the number i. It has `classes`, like the data sets of the course."""

    def __init__(self, images):
        super().__init__(torch.arange(images, dtype=torch.float64)[:, None], torch.arange(images) % 10)
        self.classes = tuple("0123456789")


def trainer(rank, ranks, per_node, **options):
    """Return Lightning's Trainer for a rank of the existing process group."""

    import lightning as L

    from lightning.pytorch.plugins.environments import LightningEnvironment

    class Ranks(LightningEnvironment):
        creates_processes_externally = True

        def global_rank(self):
            return rank

        def local_rank(self):
            return rank % per_node

        def node_rank(self):
            return rank // per_node

        def world_size(self):
            return ranks

        def set_global_rank(self, rank):
            pass

        def set_world_size(self, size):
            pass

    nodes = -(-ranks // per_node)
    return L.Trainer(
        accelerator="cpu", devices=per_node, num_nodes=nodes, strategy="ddp", plugins=[Ranks()], **options, **NOTHING
    )


def a_loss(loss):
    """Return the `loss` of a gap. Raises StudentMistake."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise StudentMistake("`loss` must be a tensor with one number, from which `backward` starts")
    return loss


def loader(rank, ranks, source, case):
    """Return the images of this rank in the order of its training steps, for each of two epochs ("orders"), and the
    sizes of the batches ("sizes")."""
    join(rank, ranks)
    import lightning as L

    student, epochs, seed = GapCode(source), 2, seed_of(case)
    found = {"orders": [[] for _ in range(epochs)], "sizes": [[] for _ in range(epochs)]}

    class Training(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.train_set, self.test_set = nn.Linear(1, 1).double(), Numbered(case["images"]), Numbered(9)
            self.args = options_of(LIGHTNING, ranks, batchsize=case["batchsize"], size=1, seed=seed, lr=RATE)

        def configure_optimizers(self):
            return torch.optim.SGD(self.model.parameters(), RATE)

        def train_dataloader(self):
            return student.run(self=self).returned

        def training_step(self, batch, batch_idx):
            try:
                images, labels = batch
            except (TypeError, ValueError):
                raise StudentMistake("your DataLoader must yield pairs of images and labels") from None
            found["orders"][self.current_epoch] += images.flatten().long().tolist()
            found["sizes"][self.current_epoch].append(len(labels))
            return self.model(images).mean()

    L.seed_everything(seed, verbose=False)
    trainer(rank, ranks, case["ranks_per_node"], max_epochs=epochs).fit(Training())
    return found


def training_step(rank, ranks, source, case):
    """Return the weights after each step under Lightning, and this rank's loss in each step."""
    join(rank, ranks)

    import lightning as L

    student, weights, losses = GapCode(source), [], []

    class Training(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = linear(case)
            self.args = options_of(LIGHTNING, ranks, batchsize=case["batchsize"], size=1, seed=seed_of(case), lr=RATE)

        def configure_optimizers(self):
            return torch.optim.SGD(self.model.parameters(), RATE, MOMENTUM)

        def training_step(self, batch, batch_idx):
            images, labels = batch
            with torch.no_grad():
                right = self.model(images)
            names = student.run(self=self, batch=batch, batch_idx=batch_idx, images=images, labels=labels)
            loss = a_loss(names.loss)
            losses.append(float(loss.detach()))
            check_outputs(names.outputs, right)
            return loss

        def on_train_batch_end(self, *_):
            weights.append(weights_of(self.model))

    trainer(rank, ranks, case.get("ranks_per_node", ranks), **ONE_PASS).fit(
        Training(), given_batches(batches(case, rank))
    )
    return {"weights": numpy.stack(weights), "losses": losses}


def validation(rank, ranks, source, case):
    """Return Lightning's [loss, accuracy] on this rank after each of case["evaluations"] (default: one)."""
    join(rank, ranks)

    import lightning as L

    student = GapCode(source)

    class Training(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.train_set, self.test_set = linear(case), range(5), range(case["images"])
            self.args = options_of(LIGHTNING, ranks, batchsize=case["batchsize"], size=1, seed=seed_of(case), lr=RATE)

        def validation_step(self, batch, batch_idx):
            images, labels = batch
            outputs = self.model(images)
            given = {"batch": batch, "batch_idx": batch_idx, "images": images, "labels": labels, "outputs": outputs}
            means = F.cross_entropy(outputs, labels), (outputs.argmax(dim=1) == labels).float().mean()
            student.run(self=self, **given, **dict(zip(("loss", "accuracy"), means)))

    used, module, found = trainer(rank, ranks, ranks, **ONE_PASS), Training(), []
    names = [f"validation/main/{name}" for name in ("loss", "accuracy")]
    for _ in range(case.get("evaluations", 1)):
        used.validate(module, given_batches(tensors(evaluated(case)[rank])), verbose=False)
        if missing := [name for name in names if name not in used.callback_metrics]:
            raise StudentMistake(
                f'rank {rank} has no "{missing[0]}" after the evaluation: log it under this name, on every rank'
            )
        found.append([float(used.callback_metrics[name]) for name in names])
    return {"found": found}


def check_outputs(outputs, right):
    """Raise StudentMistake unless `outputs` are those of the network before the step."""
    if getattr(outputs, "shape", None) != right.shape:
        raise StudentMistake(f"`outputs` must have a row of scores for each of the {len(right)} images")
    if not torch.equal(outputs.argmax(dim=1), right.argmax(dim=1)):
        raise StudentMistake(
            "`outputs` predict other classes than the network before the step: return the outputs of the forward pass,"
            " from which the script computes the accuracy"
        )


def accelerator_of(rank, ranks, per_node=None):
    """Return a real Accelerator that uses the existing process group. It reads from the environment that there are
    several ranks."""
    join(rank, ranks, per_node or ranks)
    from handson.accelerate import use_gpu

    from accelerate import Accelerator

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}  # required, but no message goes there
    use_gpu(0)
    return Accelerator()


def prepare(rank, ranks, source, case):
    """Return the weights after each step with the prepared model and optimizer, and the images of this rank in the
    prepared loaders."""
    accelerator = accelerator_of(rank, ranks)
    from accelerate.optimizer import AcceleratedOptimizer

    module, train_set, test_set = linear(case), Numbered(case["images"]), Numbered(TESTS)
    loaders = {
        "train_loader": torch.utils.data.DataLoader(train_set, BATCH, shuffle=True),
        "test_loader": torch.utils.data.DataLoader(test_set, BATCH),
    }
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM)
    args = options_of(ACCELERATE, ranks, lr=RATE, seed=seed_of(case), batchsize=BATCH, size=1)
    given = {"accelerator": accelerator, "args": args, "train_set": train_set, "test_set": test_set, **loaders}
    names = GapCode(source).run(model=module, optimizer=optimizer, **given)
    model, optimizer = names.model, names.optimizer
    if not isinstance(model, nn.Module) or not hasattr(optimizer, "step"):
        raise StudentMistake(
            f"`model` is {a_kind(model)}, and `optimizer` is {a_kind(optimizer)}: `prepare` returns the prepared"
            " objects in the order of its arguments"
        )
    if not isinstance(optimizer, AcceleratedOptimizer):
        raise StudentMistake(f"`optimizer` is {a_kind(optimizer)} that is not prepared: pass it to accelerator.prepare")
    if isinstance(getattr(model, "module", None), DistributedDataParallel):
        raise StudentMistake("`model` is wrapped twice: `prepare` has already wrapped it in DistributedDataParallel")
    weights = []
    for images, labels in batches(case, rank):
        optimizer.zero_grad()
        accelerator.backward(F.cross_entropy(model(images), labels))
        optimizer.step()
        weights.append(weights_of(module))
    found = {name: [int(image) for images, _ in names[name] for image in images.flatten()] for name in loaders}
    return {"weights": numpy.stack(weights), **found}


def step(rank, ranks, source, case):
    """Return the weights after each step, and this rank's loss in each step, with a prepared model and optimizer."""
    accelerator = accelerator_of(rank, ranks, case.get("ranks_per_node"))
    train_step, module, weights, losses = function_of(source, "train_step"), linear(case), [], []
    model, optimizer = accelerator.prepare(module, torch.optim.SGD(module.parameters(), RATE, MOMENTUM))
    passes = []  # whether each forward pass of a step is in training mode
    module.register_forward_pre_hook(lambda module, inputs: passes.append(module.training))
    for images, labels in batches(case, rank):
        with torch.no_grad():
            right = module(images)
        passes.clear()
        with filled():
            returned = train_step(accelerator, model, optimizer, images, labels)
        try:
            loss, outputs = returned
        except (TypeError, ValueError):
            raise StudentMistake("`train_step` must return the pair of `loss` and `outputs`") from None
        losses.append(float(a_loss(loss)))
        if not all(passes):
            raise StudentMistake("`model` is in evaluation mode during the step: training needs `model.train()`")
        if len(passes) > 1:
            raise StudentMistake(
                "`model` is called more than once in a step: run one forward pass, and compute `loss` from its"
                " `outputs`"
            )
        check_outputs(outputs, right)
        weights.append(weights_of(module))
    return {"weights": numpy.stack(weights), "losses": losses}
