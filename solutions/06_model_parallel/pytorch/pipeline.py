"""A pipeline from scratch: each rank is a stage, and has a part of the layers. train_pipeline.py calls these functions,
in this order.

A message carries the number of its micro-batch as its tag. `receive(like, source, tag)` waits for the message with this
tag.
"""

import torch.distributed as dist

from handson.pytorch.messages import receive, send
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


def step(operations, network, images, labels, like, loss_of):
    """Do the operations of this rank's stage in their order; each backward adds to the gradients of its part of the
    network.

    images, labels: a tensor for each micro-batch, all of the same length; like: a tensor with the shape and type of
    what stages send on; loss_of(outputs, labels): the mean loss of a micro-batch. Returns the mean loss of all of them
    on the last stage, 0 on the stages before.
    """
    stage, last = dist.get_rank(), dist.get_world_size() - 1
    held = {}  # number of a micro-batch -> (inputs, outputs) of its forward, until its backward
    sending, losses = {}, []  # operation -> its message that is on the way
    for operation in operations:
        number = int(operation[1:])
        with noted(operation):
            if operation[0] == "F":
                ### BEGIN SOLUTION forward:
                ### `inputs`: images[number] on stage 0, else what arrives from the stage before, of
                ### which backward needs the gradient (requires_grad_). `outputs`: what the network
                ### makes of it, on the last stage its loss divided by the number of micro-batches.
                ### Hold both; send(outputs.detach(), to, number) to the next stage, and keep what
                ### it returns in sending[operation]
                inputs = images[number] if stage == 0 else receive(like, stage - 1, number).requires_grad_()
                outputs = network(inputs)
                if stage == last:
                    outputs = loss_of(outputs, labels[number]) / len(labels)
                else:
                    sending[operation] = send(outputs.detach(), stage + 1, number)
                held[number] = inputs, outputs
                ### END SOLUTION
                losses.append(outputs.detach() if stage == last else 0)
            else:
                ### BEGIN SOLUTION backward:
                ### hold `inputs` and `outputs` of this micro-batch no longer. Go backward from
                ### `outputs`, with the gradient that arrives from the next stage (the last stage
                ### has a loss, and needs none); send inputs.grad to the stage before, and keep what
                ### that returns in sending[operation]
                inputs, outputs = held.pop(number)
                outputs.backward(None if stage == last else receive(outputs, stage + 1, number))
                if stage > 0:
                    sending[operation] = send(inputs.grad, stage - 1, number)
                ### END SOLUTION
                if stage < last:
                    # the next stage has answered, so the outputs have been taken: their memory is free again
                    sending.pop(f"F{number}").wait()
    for work in sending.values():
        work.wait()
    return sum(losses)
