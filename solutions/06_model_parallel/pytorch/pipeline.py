"""A pipeline from scratch: each rank is a stage and holds a part of the layers. Run it with train_pipeline.py.

Messages have no names. A rank receives the messages of another rank in the order in which they were sent, so both ranks
need the same order of micro-batches.
"""

import torch
import torch.distributed as dist

from handson.pytorch.stages import noted


def my_layers(layers, stage, stages):
    """Return the indices of a stage's layers, as a range. Stage 0 holds the first layers. The numbers of layers of two
    stages differ by at most one.

    layers: number of layers, at least the number of stages.
    """
    ### BEGIN SOLUTION my_layers:
    ### Set `mine` to the range of layers of this stage. Every layer belongs to exactly one stage,
    ### even if the number of layers is not a multiple of the number of stages
    mine = range(stage * layers // stages, (stage + 1) * layers // stages)
    ### END SOLUTION
    return mine


class Stage:
    """This rank's stage during one step. images, labels: one tensor per micro-batch; only the first stage needs the
    images, and only the last stage needs the labels."""

    def __init__(self, network, images, labels, loss_of):
        self.network, self.images, self.labels, self.loss_of = network, images, labels, loss_of
        self.first = dist.get_rank() == 0
        self.last = dist.get_rank() == dist.get_world_size() - 1
        self.held = {}  # micro-batch -> (inputs, outputs), from its forward to its backward

    def forward(self, number, arrived):
        """Run the forward of a micro-batch. Return the outputs, for the next stage; on the last stage, return the loss.

        arrived: the outputs of the stage before; None on the first stage.
        """
        ### BEGIN SOLUTION forward:
        ### Set `inputs` to self.images[number] on the first stage, and to `arrived` on the other
        ### stages. Backward needs the gradient of `arrived`: call requires_grad_(). Set `outputs`
        ### to the result of self.network. On the last stage, set `outputs` to the loss instead,
        ### divided by the number of micro-batches: self.loss_of(outputs, labels) is the mean over
        ### the images of one micro-batch. Store the pair (inputs, outputs) in self.held[number]
        inputs = self.images[number] if self.first else arrived.requires_grad_()
        outputs = self.network(inputs)
        if self.last:
            outputs = self.loss_of(outputs, self.labels[number]) / len(self.labels)
        self.held[number] = inputs, outputs
        ### END SOLUTION
        return outputs.detach()

    def backward(self, number, gradient):
        """Run the backward of a micro-batch, which adds to the gradients of the network. Return the gradient of the
        inputs, for the stage before; the first stage needs none.

        gradient: the gradient of the outputs, from the next stage; None on the last stage, whose outputs are the loss.
        """
        ### BEGIN SOLUTION backward:
        ### Remove `inputs` and `outputs` of this micro-batch from self.held, so that their memory
        ### is freed. Run backward from `outputs` with `gradient`. Set `of_inputs` to the gradient
        ### of `inputs`
        inputs, outputs = self.held.pop(number)
        outputs.backward(gradient)
        of_inputs = inputs.grad
        ### END SOLUTION
        return of_inputs


def exchange(message, to, like, source):
    """Send `message` to the rank `to`, and receive a message with the shape and type of `like` from the rank `source`.
    If one of these ranks does not exist, leave out its message. Return the received message, or None.

    Two stages may send to each other at the same time. NCCL runs its operations one after the other: if both stages
    sent first, each would wait until the other stage receives. The operations of a batch run at the same time. Ranks
    that share a GPU use gloo, which sends only from the host's memory.
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
    """Run the operations of this rank's stage in their order. Each backward adds to the gradients of `network`. With
    NCCL, the ranks must have called a collective before, such as a barrier, because it connects them.

    images, labels: one tensor per micro-batch, all of the same length; like: a tensor with the shape and type of the
    messages; loss_of(outputs, labels): the mean loss of a micro-batch. Return the mean loss of all micro-batches on the
    last stage, and 0 on the other stages.
    """
    rank, stage, losses = dist.get_rank(), Stage(network, images, labels, loss_of), []
    message, to = None, None  # the result of the operation before, and the rank that needs it
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
