"""The task of unit 10_challenge: the argument of a solution, and the loss that judges it. The training script and the
grader use both."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from handson.challenge_limits import LENGTH
from handson.pytorch.language import LanguageModel


@dataclass
class Task:
    """The argument of `train`, on each rank."""

    text: torch.Tensor  # uint8: the bytes to train on, the same on all ranks
    seed: int  # determines the first parameters and the batches
    rank: int
    ranks: int
    device: torch.device
    drawn: int = 0  # windows that this rank's batches have had so far

    def network(self):
        """Return the LanguageModel with its first parameters, which are the same on all ranks."""
        torch.manual_seed(self.seed)
        return LanguageModel(LENGTH).to(self.device)

    def batches(self, windows, stream=None):
        """Yield batches without end: bytes (windows, LENGTH), and the byte that follows each byte, in the same shape.

        The windows are drawn at random. Each rank gets its own batches, but ranks that pass the same number as `stream`
        get the same batches.
        """
        generator = torch.Generator().manual_seed(self.seed * 1000 + (self.rank if stream is None else stream))
        while True:
            begins = torch.randint(len(self.text) - LENGTH, (windows, 1), generator=generator)
            self.drawn += windows
            batch = self.text[begins + torch.arange(LENGTH + 1)].long().to(self.device)
            yield batch[:, :-1], batch[:, 1:]


def loss_of(scores, following):
    """Return the mean loss of scores (windows, length, 256) for the bytes that follow (windows, length)."""
    return F.cross_entropy(scores.flatten(0, 1), following.flatten())


@torch.no_grad()
def loss_on(network, unseen, device="cpu"):
    """Return the loss of a network on a text, a uint8 tensor of whole windows. The function takes a few windows at a
    time, because these need little memory."""
    parts = unseen.view(-1, LENGTH + 1).long().to(device).split(8)
    return sum(float(loss_of(network(part[:, :-1]), part[:, 1:])) for part in parts) / len(parts)
