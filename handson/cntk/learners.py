"""Local learners, which update parameters with the gradients of one worker, and the criteria of a classification."""

import torch
import torch.nn.functional as F


class Learner:
    """A learner of one worker. `update` uses the gradients that backward has left in the parameters: the sum over the
    samples."""

    def __init__(self, parameters, lr, momentum):
        self.parameters = list(parameters)
        self.optimizer = torch.optim.SGD(self.parameters, lr, momentum)

    def partitions(self, samples_seen):
        """Return (number of partitions, index of this worker's partition) for the next minibatch, after `samples_seen`
        samples of all workers."""
        return 1, 0

    def update(self, sums, samples_seen):
        """Run a step with the mean gradient. sums: [samples, loss, errors] of this worker. Return the sums of all
        workers together."""
        if sums[0]:
            self.step(sums[0])
        return sums

    def step(self, samples):
        """Divide the gradients by a number of samples, and run an optimizer step."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad /= samples
        self.optimizer.step()

    def reset(self):
        """Reset the momentum to 0."""
        self.optimizer.state.clear()

    def finish(self):
        """End training."""

    def state(self):
        """Return everything that the next update depends on: (the state equal on all workers, this worker's state)."""
        return {"optimizer": self.optimizer.state_dict()}, {}

    def restore(self, shared, own):
        self.optimizer.load_state_dict(shared["optimizer"])


def sgd(parameters, lr):
    """Return a learner for stochastic gradient descent. lr: applies to the mean gradient of a minibatch."""
    return Learner(parameters, lr, momentum=0)


def momentum_sgd(parameters, lr, momentum, unit_gain=True):
    """Return a learner with momentum. unit_gain: whether new gradients are multiplied by 1 - momentum. CNTK's default
    is True; PyTorch corresponds to False."""
    return Learner(parameters, lr * (1 - momentum) if unit_gain else lr, momentum)


def cross_entropy_with_softmax(output_vector, target_vector):
    """Return the loss of each sample, (N,). output_vector: scores (N, classes); target_vector: one-hot (N, classes)."""
    return F.cross_entropy(output_vector, target_vector.to(output_vector.dtype), reduction="none")


def classification_error(output_vector, target_vector):
    """Return an array (N,) with 1 for each sample whose highest score is not at the target's class, and 0 for all
    others."""
    return (output_vector.argmax(dim=1) != target_vector.argmax(dim=1)).to(output_vector.dtype)
