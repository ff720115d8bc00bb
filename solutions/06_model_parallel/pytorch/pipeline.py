"""A pipeline from scratch: each rank is a stage, and has a part of the layers. train_pipeline.py calls `my_layers` and
`step`.

A message has no name. What a rank sends first to another one is what that one receives first, so both have the same
order of micro-batches.
"""

import torch
import torch.distributed as dist

from handson.pytorch.stages import noted


def my_layers(layers, stage, stages):
    """The numbers of the layers of a stage: a range. Stage 0 has the first ones; two stages differ by one layer at
    most.

    layers: how many there are, at least as many as stages.
    """
    ### BEGIN SOLUTION my_layers:
    ### `mine`: range(...); all layers are on one stage each, also where stages do not divide them
    mine = range(stage * layers // stages, (stage + 1) * layers // stages)
    ### END SOLUTION
    return mine


class Stage:
    """A step of this rank's stage. images, labels: a tensor for each micro-batch; only the first stage needs the
    images, only the last one the labels."""

    def __init__(self, network, images, labels, loss_of):
        self.network, self.images, self.labels, self.loss_of = network, images, labels, loss_of
        self.first = dist.get_rank() == 0
        self.last = dist.get_rank() == dist.get_world_size() - 1
        self.held = {}  # number of a micro-batch -> (inputs, outputs), from forward to backward

    def forward(self, number, arrived):
        """The forward of a micro-batch. Returns the outputs, for the next stage; on the last stage, the loss.

        arrived: the outputs of the stage before; None on the first stage.
        """
        ### BEGIN SOLUTION forward:
        ### `inputs`: self.images[number] on the first stage, else `arrived`, of which backward needs
        ### the gradient (requires_grad_). `outputs`: what self.network makes of them, on the last
        ### stage its loss divided by the number of micro-batches; self.loss_of(outputs, labels of
        ### the micro-batch) is a mean over its images. Hold both in self.held[number]
        inputs = self.images[number] if self.first else arrived.requires_grad_()
        outputs = self.network(inputs)
        if self.last:
            outputs = self.loss_of(outputs, self.labels[number]) / len(self.labels)
        self.held[number] = inputs, outputs
        ### END SOLUTION
        return outputs.detach()

    def backward(self, number, gradient):
        """The backward of a micro-batch, which adds to the gradients of the network. Returns the gradient of the
        inputs, for the stage before; the first stage needs none.

        gradient: of the outputs, from the next stage; None on the last stage, which has the loss.
        """
        ### BEGIN SOLUTION backward:
        ### hold `inputs` and `outputs` of this micro-batch no longer. Go backward from `outputs`,
        ### with `gradient`. `of_inputs`: the gradient that `inputs` have then
        inputs, outputs = self.held.pop(number)
        outputs.backward(gradient)
        of_inputs = inputs.grad
        ### END SOLUTION
        return of_inputs


def exchange(message, to, like, source):
    """Send `message` to the rank `to`, and receive one with the shape and type of `like` from the rank `source`; there
    may be no such ranks. Returns what has arrived, or None.

    Two stages may send to each other at this moment. NCCL does one thing after the other: if both sent first, each
    would wait until the other one receives. In a batch it does all at once. gloo, which ranks use that share a GPU,
    sends from the host's memory only.
    """
    ranks = range(dist.get_world_size())
    memory = "cpu" if dist.get_backend() == "gloo" else like.device
    arrived = torch.empty_like(like, device=memory) if source in ranks else None
    messages = []
    if source in ranks:
        messages.append(dist.P2POp(dist.irecv, arrived, source))
    if to in ranks:
        messages.append(dist.P2POp(dist.isend, message.contiguous().to(memory), to))
    for work in dist.batch_isend_irecv(messages) if messages else ():
        work.wait()
    return arrived if arrived is None else arrived.to(like.device)


def step(operations, network, images, labels, like, loss_of):
    """Do the operations of this rank's stage in their order; each backward adds to the gradients of its part of the
    network. With NCCL, the ranks have called a collective before, such as a barrier, by which it connects them.

    images, labels: a tensor for each micro-batch, all of the same length; like: a tensor with the shape and type of
    what stages send on; loss_of(outputs, labels): the mean loss of a micro-batch. Returns the mean loss of all of them
    on the last stage, 0 on the stages before.
    """
    rank, stage, losses = dist.get_rank(), Stage(network, images, labels, loss_of), []
    message, to = None, None  # what the operation before has made, and the rank that needs it
    for operation in operations:
        kind, number = operation[0], int(operation[1:])
        onward = 1 if kind == "F" else -1
        arrived = exchange(message, to, like, rank - onward)
        with noted(operation):
            message = stage.forward(number, arrived) if kind == "F" else stage.backward(number, arrived)
        if kind == "F" and stage.last:
            losses.append(message)
        to = rank + onward
    exchange(message, to, like, None)
    return sum(losses)
