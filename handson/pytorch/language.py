"""The network of unit 10_challenge: a small transformer that reads a text byte by byte and predicts each next byte."""

import torch
import torch.nn.functional as F
from torch import nn

from handson.pytorch.transformer import Attention, Block

TOKENS = 256  # a token is a byte


class CausalAttention(Attention):
    """Attention with a causal mask: each token attends only to itself and to earlier tokens."""

    def forward(self, tokens):
        query, key, value = (self.split(layer(tokens)) for layer in (self.query, self.key, self.value))
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(attended.transpose(1, 2).flatten(2))


class Embedding(nn.Module):
    """Convert bytes (N, length), whole numbers, to tokens (N, length, width), and add an embedding of the position."""

    def __init__(self, length, width):
        super().__init__()
        self.token_embedding = nn.Embedding(TOKENS, width)
        self.position_embedding = nn.Parameter(0.02 * torch.randn(length, width))

    def forward(self, text):
        return self.token_embedding(text) + self.position_embedding[: text.shape[1]]


class LanguageModel(nn.Module):
    """Convert bytes (N, length) to scores of each next byte (N, length, 256), with an embedding, blocks, and a head."""

    def __init__(self, length=64, width=64, heads=4, blocks=2):
        super().__init__()
        self.embedding = Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        for block in self.blocks:
            block.attention = CausalAttention(width, heads)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, TOKENS))

    def forward(self, text):
        return self.head(self.blocks(self.embedding(text)))
