"""Local learners, which update parameters with the gradients of one worker, and the criteria of a classification."""

import torch
import torch.nn.functional as F


class Learner:
    """A learner of one worker. `update` takes what backward has left in the parameters: the sum of the samples'
    gradients."""

    def __init__(self, parameters, lr, momentum):
        self.parameters = list(parameters)
        self.optimizer = torch.optim.SGD(self.parameters, lr, momentum)

    def partitions(self, samples_seen):
        """(number of partitions, index of this worker's): what it takes of the next minibatch, after `samples_seen` of
        all workers."""
        return 1, 0

    def update(self, sums, samples_seen):
        """One step with the mean gradient. sums: [samples, loss, errors] of this worker; returns those of all workers
        together."""
        if sums[0]:
            self.step(sums[0])
        return sums

    def step(self, samples):
        """Divide the gradients by a number of samples, and take a step."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad /= samples
        self.optimizer.step()

    def reset(self):
        """Forget the momentum."""
        self.optimizer.state.clear()

    def finish(self):
        """The training is over."""

    def state(self):
        """(what is the same on all workers, what is this worker's own) of all that the next update depends on."""
        return {"optimizer": self.optimizer.state_dict()}, {}

    def restore(self, shared, own):
        self.optimizer.load_state_dict(shared["optimizer"])


def sgd(parameters, lr):
    """A learner for stochastic gradient descent. lr: applied to the mean gradient of a minibatch."""
    return Learner(parameters, lr, momentum=0)


def momentum_sgd(parameters, lr, momentum, unit_gain=True):
    """A learner with momentum. unit_gain: new gradients count 1 - momentum, as CNTK has it unless told otherwise;
    PyTorch has False."""
    return Learner(parameters, lr * (1 - momentum) if unit_gain else lr, momentum)


def cross_entropy_with_softmax(output_vector, target_vector):
    """The loss of each sample; output_vector: scores (N, classes); target_vector: one-hot (N, classes). Returns
    (N,)."""
    return F.cross_entropy(output_vector, target_vector.to(output_vector.dtype), reduction="none")


def classification_error(output_vector, target_vector):
    """1 for each sample whose highest score is at another class than the target, else 0: (N,)."""
    return (output_vector.argmax(dim=1) != target_vector.argmax(dim=1)).to(output_vector.dtype)
