"""Parts of a training for scripts whose lesson is another one: the optimizer, and data-parallel steps on the GPUs of
one node."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from handson.pytorch import devices
from handson.pytorch.model import ConvNet


def network(comm, args, classes):
    """(device, model, optimizer) of this rank: its GPU, and a network for `classes` classes that begins alike on all
    ranks."""
    device = devices.use(args.gpu[comm.rank])
    torch.manual_seed(args.seed)
    model = ConvNet(classes).to(device)
    return device, model, sgd(model, args)


def sgd(model, args):
    """The optimizer of the course's trainings: SGD with momentum, and the rate args.lr."""
    return torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)


def one_step(model, optimizer, images, labels):
    """One iteration on this rank's batch, with an all-reduce; returns the batch's mean loss, a tensor."""
    loss = F.cross_entropy(model(images), labels)
    backward(loss, optimizer)
    average_gradients(model, len(images))
    optimizer.step()
    return loss


def backward(loss, optimizer):
    """Replace the gradients of the optimizer's parameters by those of `loss`."""
    optimizer.zero_grad()
    loss.backward()


def average_gradients(model, images):
    """Replace every gradient, a mean over this rank's `images` (their number), by the mean over the images of all
    ranks: one message."""
    gradients = [parameter.grad for parameter in model.parameters()]
    sums = torch.cat([images * gradient.flatten() for gradient in gradients] + [gradients[0].new_tensor([images])])
    dist.all_reduce(sums)
    means = (sums[:-1] / sums[-1]).split([gradient.numel() for gradient in gradients])
    for gradient, mean in zip(gradients, means):
        gradient.copy_(mean.view_as(gradient))
