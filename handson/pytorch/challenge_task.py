"""The task of unit 10_challenge: what a solution gets, and how a trained network is judged. The training script and the
grader use the same."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from handson.challenge_limits import LENGTH
from handson.pytorch.language import LanguageModel


@dataclass
class Task:
    """What `train` of a solution gets, on each of the ranks."""

    text: torch.Tensor  # uint8: the bytes to train on, the same on all ranks
    seed: int  # of the first parameters and of the batches
    rank: int
    ranks: int
    device: torch.device
    drawn: int = 0  # windows in this rank's batches so far

    def network(self):
        """The LanguageModel with its first parameters, the same on all ranks."""
        torch.manual_seed(self.seed)
        return LanguageModel(LENGTH).to(self.device)

    def batches(self, windows, stream=None):
        """Batches without end: bytes (windows, LENGTH), and the byte that follows each of them, in the same shape.

        They are drawn at random. Each rank gets batches of its own; ranks that give the same number as `stream` get the
        same ones.
        """
        chance = torch.Generator().manual_seed(self.seed * 1000 + (self.rank if stream is None else stream))
        while True:
            begins = torch.randint(len(self.text) - LENGTH, (windows, 1), generator=chance)
            self.drawn += windows
            taken = self.text[begins + torch.arange(LENGTH + 1)].long().to(self.device)
            yield taken[:, :-1], taken[:, 1:]


def loss_of(scores, following):
    """The mean loss of scores (windows, length, 256), given the bytes that follow (windows, length)."""
    return F.cross_entropy(scores.flatten(0, 1), following.flatten())


@torch.no_grad()
def loss_on(network, unseen, device="cpu"):
    """The loss of a network on a text, a uint8 tensor of whole windows. It takes a few windows at a time, which need
    little memory."""
    parts = unseen.view(-1, LENGTH + 1).long().to(device).split(8)
    return sum(float(loss_of(network(part[:, :-1]), part[:, 1:])) for part in parts) / len(parts)
