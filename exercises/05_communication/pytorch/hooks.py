"""What DistributedDataParallel sends in place of all bits of the gradients: communication hooks, which train_hooks.py
registers.

A hook gets the state that it was registered with, and a bucket: ``bucket.buffer()`` is one long tensor with this rank's
gradients. It returns a future of the tensor that takes their place: the mean over the ranks, as well as it is known.

A hook that keeps residuals for each bucket begins after some steps: DistributedDataParallel makes its buckets again
after the first one.
"""

import torch
import torch.distributed as dist

from handson.pytorch.messages import done, gather, pack, unpack


def plain(state, bucket):
    """All bits of all gradients, as without a hook."""
    gradients = bucket.buffer().div_(dist.get_world_size())
    work = dist.all_reduce(gradients, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def one_bit(residuals, bucket):
    """A bit for each gradient: its sign. Every rank adds what it could not send to its next gradients (error feedback).

    residuals: bucket.index() -> what this rank still owes, a tensor like bucket.buffer(). Seide et al., "1-bit
    stochastic gradient descent and its application to data-parallel distributed training of speech DNNs", Interspeech
    2014.
    """
    gradients, index = bucket.buffer(), bucket.index()
    # PUT YOUR CODE: `owed`: the gradients and the residual of this bucket (at first there is none);
    # `scale`: the mean of the absolute values of `owed`; `positive`: where `owed` is 0 or more; then keep
    # the new residual: `owed` minus what is sent, scale or -scale
    raise NotImplementedError("PUT YOUR CODE: one_bit")
    mean = torch.zeros_like(gradients)
    for other_scale, bits in gather([scale, pack(positive)]):
        mean += torch.where(unpack(bits, len(mean)), other_scale, -other_scale)
    return done(mean / dist.get_world_size())


def top_k(residuals, bucket, share=0.01):
    """The largest of the gradients only, with their places; error feedback as for `one_bit`."""
    gradients, index = bucket.buffer(), bucket.index()
    count = max(1, round(share * len(gradients)))
    # PUT YOUR CODE: `owed` as above; `places`: where the `count` largest absolute values of `owed` are;
    # `values`: what is there; the residual is `owed` with 0 at these places
    raise NotImplementedError("PUT YOUR CODE: top_k")
    mean = torch.zeros_like(gradients)
    for other_values, other_places in gather([values, places.int()]):
        mean.index_add_(0, other_places, other_values)
    return done(mean / dist.get_world_size())
