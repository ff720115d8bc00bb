"""The network of notebook 06_model_parallel: a small transformer that reads an image as a sequence of patches.

Its layers follow each other: the patches, the blocks, the head. So a pipeline can assign a range of layers to each
stage.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Patches(nn.Module):
    """Map images (N, 3, size, size) to a sequence of patches (N, tokens, width), and add the embedding of their
    positions; tokens = (size / patch) squared."""

    def __init__(self, size, patch, width):
        super().__init__()
        self.project = nn.Conv2d(3, width, patch, stride=patch)
        self.position_embedding = nn.Parameter(0.02 * torch.randn((size // patch) ** 2, width))

    def forward(self, images):
        # contiguous, as messages between stages are
        return self.project(images).flatten(2).transpose(1, 2).contiguous() + self.position_embedding


class Attention(nn.Module):
    """Let each token (N, tokens, width) attend to all tokens. The width is divided among the heads, which are
    independent."""

    def __init__(self, width, heads, dropout=0.0):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, tokens):
        query, key, value = (self.split(layer(tokens)) for layer in (self.query, self.key, self.value))
        attended = F.scaled_dot_product_attention(query, key, value, dropout_p=self.dropout * self.training)
        return self.out(attended.transpose(1, 2).flatten(2))

    def split(self, tokens):
        """Map (N, tokens, width) to (N, heads, tokens, width of a head)."""
        return tokens.unflatten(2, (self.heads, -1)).transpose(1, 2)


class MLP(nn.Module):
    """Map each token (N, tokens, width) separately, through a hidden layer four times as wide."""

    def __init__(self, width, dropout=0.0):
        super().__init__()
        self.up, self.down, self.dropout = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), dropout

    def forward(self, tokens):
        return self.down(F.dropout(F.gelu(self.up(tokens)), self.dropout, self.training))


class Block(nn.Module):
    """The repeated unit of a transformer: attention, then an MLP. Each adds to its input tokens (N, tokens, width)."""

    def __init__(self, width, heads, dropout=0.0):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads, dropout)
        self.norm2, self.mlp = nn.LayerNorm(width), MLP(width, dropout)

    def forward(self, tokens):
        tokens = tokens + self.attention(self.norm1(tokens))
        return tokens + self.mlp(self.norm2(tokens))


class Head(nn.Module):
    """Map tokens (N, tokens, width) to class scores (N, classes)."""

    def __init__(self, width, classes):
        super().__init__()
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, tokens):
        return self.scores(self.norm(tokens).mean(dim=1))


def layers(classes=10, size=8, patch=2, width=128, heads=4, blocks=4, dropout=0.0):
    """Yield the layers of a Transformer in order. Each is created when it is asked for, so a pipeline stage keeps its
    own layers and never holds all of them."""
    yield Patches(size, patch, width)
    for _ in range(blocks):
        yield Block(width, heads, dropout)
    yield Head(width, classes)


class Transformer(nn.Module):
    """Map images (N, 3, size, size) to class scores (N, classes), with the layers of `layers` for the same options."""

    def __init__(self, *arguments, **options):
        super().__init__()
        patches, *blocks, head = layers(*arguments, **options)
        self.patches, self.blocks, self.head = patches, nn.Sequential(*blocks), head

    def forward(self, images):
        return self.head(self.blocks(self.patches(images)))
