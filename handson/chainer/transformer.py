"""The network of notebook 06_model_parallel in Chainer: the layers of handson.pytorch.transformer, created one by one,
so that a stage creates only its own."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy


class Norm(L.LayerNormalization):
    """Chainer's normalisation of the last axis, for tokens (N, tokens, width)."""

    def __init__(self, width):
        super().__init__(width, eps=1e-5)

    def forward(self, tokens):
        return F.reshape(super().forward(F.reshape(tokens, (-1, tokens.shape[2]))), tokens.shape)


class Patches(chainer.Chain):
    """Map images (N, 3, size, size) to a sequence of patches (N, tokens, width), and add the embedding of their
    positions."""

    def __init__(self, size, patch, width):
        super().__init__()
        with self.init_scope():
            self.project = L.Convolution2D(3, width, patch, stride=patch)
            positions = 0.02 * numpy.random.randn((size // patch) ** 2, width)
            self.position_embedding = chainer.Parameter(positions.astype("float32"))

    def forward(self, images):
        patches = self.project(images)
        tokens = F.transpose(F.reshape(patches, (*patches.shape[:2], -1)), (0, 2, 1))
        return tokens + F.broadcast_to(self.position_embedding, tokens.shape)


class Attention(chainer.Chain):
    """Let each token (N, tokens, width) attend to all tokens. The width is divided among the heads."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        with self.init_scope():
            self.query, self.key, self.value, self.out = (L.Linear(width, width) for _ in range(4))

    def forward(self, tokens):
        query, key, value = (self._split(of(tokens, n_batch_axes=2)) for of in (self.query, self.key, self.value))
        scores = F.matmul(query, key, transb=True) / query.shape[3] ** 0.5
        taken = F.transpose(F.matmul(F.softmax(scores, axis=3), value), (0, 2, 1, 3))
        return self.out(F.reshape(taken, tokens.shape), n_batch_axes=2)

    def _split(self, tokens):
        """Map (N, tokens, width) to (N, heads, tokens, width of a head)."""
        samples, length, width = tokens.shape
        return F.transpose(F.reshape(tokens, (samples, length, self.heads, width // self.heads)), (0, 2, 1, 3))


class Block(chainer.Chain):
    """The repeated unit of a transformer: attention, then an MLP. Each adds to its input tokens (N, tokens, width)."""

    def __init__(self, width, heads):
        super().__init__()
        with self.init_scope():
            self.norm1, self.attention, self.norm2 = Norm(width), Attention(width, heads), Norm(width)
            self.up, self.down = L.Linear(width, 4 * width), L.Linear(4 * width, width)

    def forward(self, tokens):
        tokens = tokens + self.attention(self.norm1(tokens))
        wide = self.up(self.norm2(tokens), n_batch_axes=2)
        return tokens + self.down(gelu(wide), n_batch_axes=2)


class Head(chainer.Chain):
    """Map tokens (N, tokens, width) to class scores (N, classes)."""

    def __init__(self, width, classes):
        super().__init__()
        with self.init_scope():
            self.norm, self.scores = Norm(width), L.Linear(width, classes)

    def forward(self, tokens):
        return self.scores(F.mean(self.norm(tokens), axis=1))


def gelu(numbers):
    """Return GELU in its approximation with tanh (Hendrycks and Gimpel 2016), which Chainer does not have."""
    return 0.5 * numbers * (1 + F.tanh((2 / numpy.pi) ** 0.5 * (numbers + 0.044715 * numbers**3)))


def layers(classes=10, size=8, patch=2, width=128, heads=4, blocks=4):
    """Yield the layers of the network. Each is created when it is asked for."""
    yield Patches(size, patch, width)
    for _ in range(blocks):
        yield Block(width, heads)
    yield Head(width, classes)
