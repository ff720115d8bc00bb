"""The oracle of the profiling scripts' probes: computed in one process, without a student's code; called as in grader.oracles.pytorch."""

import torch
import torch.nn.functional as F
from torch.utils.data import DistributedSampler

from grader.probes.pytorch import flat
from grader.units.profiling.probes.pytorch import LR, labels_of, pictures, raw
from handson.pytorch.model import ConvNet
from handson.training.data import enlarge


def training(rank, ranks, case):
    """A training of case["ranks"] ranks, computed in one process, rank after rank: the parameters at the end, the mean loss of each epoch,
    and the number of steps in an epoch."""
    seed, workers, images, labels = case["seed"] % 1000, case["ranks"], _images(case), labels_of(case["images"])
    samplers = [DistributedSampler(labels, workers, number, seed=seed) for number in range(workers)]
    torch.manual_seed(seed)
    model, losses = ConvNet(10), []
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    for epoch in range(case["epochs"]):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        of_steps = []
        for parts in zip(*(torch.tensor(list(sampler)).split(case["batchsize"]) for sampler in samplers)):
            optimizer.zero_grad()
            loss = sum(F.cross_entropy(model(images[part]), labels[part], reduction="sum") for part in parts) / sum(map(len, parts))
            loss.backward()
            optimizer.step()
            of_steps.append(loss.item())
        losses.append(sum(of_steps) / len(of_steps))
    return {"parameters": flat(model.parameters()), "losses": losses, "steps": len(of_steps)}


def _images(case):
    """The images as the network gets them."""
    if not case.get("files"):
        return enlarge(pictures(case["images"], case["seed"]), 64)
    images = F.avg_pool2d(raw(case["images"], case["seed"]).float(), 2)
    return torch.stack([(image - image.mean()) / image.std() for image in images])
