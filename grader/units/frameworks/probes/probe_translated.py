"""The probes of the scripts of Lightning and Accelerate: gaps run in a real Trainer, or with a real Accelerator, in a
process group. Both are imported when a probe is called, since the probes of all units are loaded where there is no
second environment."""

import os
from types import SimpleNamespace

import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from grader.probes.gap_code import GapCode
from grader.probes.pytorch_scripts import dataset, join, samples, seed_of
from grader.probes.script import options_of
from grader.sandbox.rank import StudentMistake
from grader.units.frameworks.frameworks_numbers import (
    CLASSES,
    FEATURES,
    MOMENTUM,
    RATE,
    TESTS,
    evaluated,
    parts,
    start,
    total_of,
)
from handson.pytorch.batches import EpochBatches

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


def linear(case):
    """A linear model in double precision with the weights that the case starts with: (N, FEATURES) to (N, CLASSES)."""
    weights, model = torch.from_numpy(start(case)), nn.Linear(FEATURES, CLASSES).double()
    with torch.no_grad():
        model.weight.copy_(weights[:-1].T)
        model.bias.copy_(weights[-1])
    return model


def weights_of(model):
    """As `start` has them."""
    return numpy.vstack([model.weight.detach().numpy().T, model.bias.detach().numpy()])


def batches(case, rank):
    """[(images, labels)] of a rank in each step in which it has images."""
    return tensors([parts(case, step)[rank] for step in range(case["steps"])])


def tensors(of_steps):
    """[(images, labels)] of arrays as tensors, without those that have no image."""
    return [
        (torch.from_numpy(images.astype("float64")), torch.from_numpy(labels.astype("int64")))
        for images, labels in of_steps
        if len(labels)
    ]


def loader(of_steps):
    """Of a list of batches; Lightning would take a list for several loaders."""
    return torch.utils.data.DataLoader(of_steps, batch_size=None)


def trainer(rank, ranks, per_node):
    """Lightning's Trainer for a rank of the group that is there."""
    from handson.lightning import L

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
        accelerator="cpu",
        devices=per_node,
        num_nodes=nodes,
        strategy="ddp",
        plugins=[Ranks()],
        use_distributed_sampler=False,
        max_epochs=1,
        **NOTHING,
    )


def a_loss(names):
    """The `loss` of a gap. Raises Wrong."""
    if not isinstance(names.loss, torch.Tensor) or names.loss.numel() != 1:
        raise StudentMistake("`loss` should be a tensor with one number, from which `backward` starts")
    return names.loss


def shard(rank, ranks, source, case):
    """The shard and the lengths of one rank, and its shard in a second run with the same seed ("again") and in one with
    another ("other")."""
    join(rank, ranks)
    from handson.lightning import L

    student, whole, module = GapCode(source), dataset(case["images"], case["seed"]), L.LightningModule()
    module.trainer, module.sets, found = (
        trainer(rank, ranks, case["ranks_per_node"]),
        (whole, dataset(9, case["seed"] + 1)),
        [],
    )
    for number, another in enumerate((0, 0, 1)):
        torch.manual_seed(number + 3 * rank)  # an order that does not follow from args.seed changes
        module.args = options_of(LIGHTNING, ranks, seed=seed_of(case) + another, batchsize=4)
        names = student.run(self=module, train_set=whole)
        if not hasattr(names.shard, "__len__") or not hasattr(names.shard, "__getitem__"):
            raise StudentMistake(f"`shard` is a {type(names.shard).__name__}, not the images of this rank")
        try:
            lengths = [int(length) for length in names.lengths]
        except (TypeError, ValueError):
            raise StudentMistake(f"`lengths` is {names.lengths!r:.60}, not a list of whole numbers") from None
        found.append((samples(names.shard, case), lengths))
    return {"samples": found[0][0], "lengths": found[0][1], "again": found[1][0], "other": found[2][0]}


def average(rank, ranks, source, case):
    """The weights after each step under Lightning, and this rank's loss in each."""
    join(rank, ranks)
    from handson.lightning import L

    student, weights, losses = GapCode(source), [], []

    class Training(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.batches = (
                linear(case),
                SimpleNamespace(totals=[total_of(case, step) for step in range(case["steps"])]),
            )
            self.args = options_of(LIGHTNING, ranks, batchsize=case["batchsize"], size=1, seed=seed_of(case), lr=RATE)

        def configure_optimizers(self):
            return torch.optim.SGD(self.model.parameters(), RATE, MOMENTUM)

        def training_step(self, batch, number):
            images, labels = batch
            given = {
                "images": images,
                "labels": labels,
                "outputs": self.model(images),
                "total": self.batches.totals[number],
            }
            loss = a_loss(student.run(self=self, batch=batch, number=number, **given))
            losses.append(float(loss.detach()))
            return loss

        def on_train_batch_end(self, *_):
            weights.append(weights_of(self.model))

    trainer(rank, ranks, case.get("ranks_per_node", ranks)).fit(Training(), loader(batches(case, rank)))
    return {"weights": numpy.stack(weights), "losses": losses}


def validation(rank, ranks, source, case):
    """What Lightning has for this rank after each of case["evaluations"], one by default: [loss, accuracy]."""
    join(rank, ranks)
    from handson.lightning import L

    student = GapCode(source)

    class Training(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.sets = linear(case), (range(5), range(case["images"]))
            self.args = options_of(LIGHTNING, ranks, batchsize=case["batchsize"], size=1, seed=seed_of(case), lr=RATE)

        def validation_step(self, batch, number):
            images, labels = batch
            outputs = self.model(images)
            sums = {
                "loss": F.cross_entropy(outputs, labels, reduction="sum"),
                "correct": (outputs.argmax(dim=1) == labels).float().sum(),
            }
            student.run(self=self, batch=batch, number=number, images=images, labels=labels, outputs=outputs, **sums)

    used, module, found = trainer(rank, ranks, ranks), Training(), []
    names = [f"validation/main/{name}" for name in ("loss", "accuracy")]
    for _ in range(case.get("evaluations", 1)):
        used.validate(module, loader(tensors(evaluated(case)[rank])), verbose=False)
        if missing := [name for name in names if name not in used.callback_metrics]:
            raise StudentMistake(
                f'after the evaluation rank {rank} has no "{missing[0]}": log it under this name, on every rank'
            )
        found.append([float(used.callback_metrics[name]) for name in names])
    return {"found": found}


def accelerator_of(rank, ranks):
    """A real Accelerator, which takes the process group that is there; it learns from the environment that there are
    several ranks."""
    from handson.pytorch.accelerating import accelerate

    os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)})
    return accelerate(torch.device("cpu"))


def prepare(rank, ranks, source, case):
    """The weights after each step with the prepared model and optimizer, and the images that the loaders then have for
    this rank ("tested": how many)."""
    from accelerate.optimizer import AcceleratedOptimizer

    comm, accelerator = join(rank, ranks, ranks), accelerator_of(rank, ranks)
    lengths = [case["images"] // ranks + (other < case["images"] % ranks) for other in range(ranks)]
    order, begin = EpochBatches(lengths, rank, 3, seed_of(case)), sum(lengths[:rank])
    whole, model = dataset(case["images"], case["seed"]), linear(case)
    mine = torch.utils.data.Subset(whole, range(begin, begin + lengths[rank]))
    given = {"batches": order, "shard": mine, "train_loader": torch.utils.data.DataLoader(mine, batch_sampler=order)}
    test_set = dataset(TESTS, case["seed"] + 1)
    given["test_shard"] = torch.utils.data.Subset(test_set, range(rank, TESTS, ranks))
    given |= {
        "train_set": whole,
        "test_set": test_set,
        "test_loader": torch.utils.data.DataLoader(given["test_shard"], 3),
    }
    given["optimizer"] = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    args = options_of(ACCELERATE, ranks, lr=RATE, seed=seed_of(case), batchsize=3, size=1)
    names = GapCode(source).run(comm=comm, accelerator=accelerator, args=args, model=model, **given)
    if not isinstance(names.replica, nn.Module) or not hasattr(names.optimizer, "step"):
        kinds = (type(one).__name__ for one in (names.replica, names.optimizer))
        raise StudentMistake(
            (
                "`replica` is a {}, and `optimizer` a {}: `prepare` returns things in the order in which it gets them"
            ).format(*kinds)
        )
    if not isinstance(names.optimizer, AcceleratedOptimizer):
        raise StudentMistake(
            f"`optimizer` is a {type(names.optimizer).__name__}, which is not prepared: `prepare` takes the model and"
            " the optimizer, and returns both"
        )
    if isinstance(getattr(names.replica, "module", None), DistributedDataParallel):
        raise StudentMistake(
            "`replica` is wrapped twice: `prepare` has wrapped the model by DistributedDataParallel already"
        )
    used = samples([pair for images, labels in names.train_loader for pair in zip(images, labels)], case)
    tested = sum(len(labels) for _, labels in names.test_loader)
    weights = []
    for images, labels in batches(case, rank):
        names.optimizer.zero_grad()
        loss = F.cross_entropy(names.replica(images), labels, reduction="sum") * ranks / case["total"]
        accelerator.backward(loss)
        names.optimizer.step()
        weights.append(weights_of(model))
    return {"weights": numpy.stack(weights), "used": used, "tested": tested}


def step(rank, ranks, source, case):
    """The weights after each step, and this rank's loss in each, with a model and an optimizer that are prepared."""
    comm, accelerator = join(rank, ranks, case.get("ranks_per_node", ranks)), accelerator_of(rank, ranks)
    model, student, weights, losses = linear(case), GapCode(source), [], []
    replica, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), RATE, MOMENTUM))
    passes = []  # of each forward pass of a step, whether it is in training
    model.register_forward_pre_hook(lambda model, inputs: passes.append(model.training))
    args = options_of(ACCELERATE, ranks, batchsize=case["batchsize"], size=1, seed=seed_of(case), lr=RATE)
    for images, labels in batches(case, rank):
        given = {
            "comm": comm,
            "accelerator": accelerator,
            "args": args,
            "model": model,
            "replica": replica,
            "optimizer": optimizer,
        }
        totals = SimpleNamespace(totals=[case["total"]] * case["steps"])
        with torch.no_grad():
            right = model(images)
        passes.clear()
        names = student.run(**given, images=images, labels=labels, total=case["total"], batches=totals, epoch=0)
        losses.append(float(a_loss(names).detach()))
        if getattr(names.outputs, "shape", None) != right.shape:
            raise StudentMistake(f"`outputs` should have a row of scores for each of the {len(labels)} images")
        if not all(passes):
            raise StudentMistake(
                "the images go through the network in evaluation mode; training needs `replica.train()`"
            )
        if len(passes) > 1:
            raise StudentMistake(
                "the images go through the network more than once in a step: one forward pass gives `outputs`, and"
                " these give the loss"
            )
        if not torch.equal(names.outputs.argmax(dim=1), right.argmax(dim=1)):
            raise StudentMistake(
                "`outputs` are not largest where the network's are for the images before the step: from them the script"
                " computes the accuracy"
            )
        weights.append(weights_of(model))
    return {"weights": numpy.stack(weights), "losses": losses}
