"""Communication hooks, which decide what DistributedDataParallel sends instead of float32 gradients. train_hooks.py
registers them.

A hook is called with the state that it was registered with, and with a bucket: ``bucket.buffer()`` is one long tensor
with this rank's gradients. The hook returns a future of the tensor that replaces them: an approximation of the mean
over the ranks.

Hooks that keep a residual for each bucket start after a few steps, because DistributedDataParallel rebuilds its buckets
after the first step.
"""

import torch
import torch.distributed as dist

from handson.pytorch.messages import done, gather, pack, unpack


def plain(state, bucket):
    """Send float32 gradients, as DistributedDataParallel does without a hook."""
    gradients = bucket.buffer().div_(dist.get_world_size())
    work = dist.all_reduce(gradients, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def one_bit(residuals, bucket):
    """Send one bit per gradient: its sign. Every rank adds the part that it could not send to its next gradients (error
    feedback).

    residuals: bucket.index() -> the part that this rank has not sent yet, a tensor like bucket.buffer(). Seide et al.,
    "1-bit stochastic gradient descent and its application to data-parallel distributed training of speech DNNs",
    Interspeech 2014.
    """
    gradients, index = bucket.buffer(), bucket.index()
    ### BEGIN SOLUTION one_bit:
    ### set `owed` to the gradients plus this bucket's residual (there is none in the first step).
    ### Set `scale` to the mean of the absolute values of `owed`. Set `positive` to `owed >= 0`.
    ### Store the new residual: `owed` minus what is sent, which is +scale where `positive` is True,
    ### and -scale elsewhere
    owed = gradients + residuals.get(index, 0)
    scale, positive = owed.abs().mean(), owed >= 0
    residuals[index] = owed - torch.where(positive, scale, -scale)
    ### END SOLUTION
    mean = torch.zeros_like(gradients)
    for other_scale, bits in gather([scale, pack(positive)]):
        mean += torch.where(unpack(bits, len(mean)), other_scale, -other_scale)
    return done(mean / dist.get_world_size())


def top_k(residuals, bucket, share=0.01):
    """Send only the largest gradients, with their indices, and with error feedback as in `one_bit`."""
    gradients, index = bucket.buffer(), bucket.index()
    count = max(1, round(share * len(gradients)))
    ### BEGIN SOLUTION top_k:
    ### set `owed` as in `one_bit`. Set `places` to the indices of the `count` largest absolute
    ### values of `owed`. Set `values` to the numbers of `owed` at these indices. Store the new
    ### residual: `owed` with 0 at these indices
    owed = gradients + residuals.get(index, 0)
    places = owed.abs().topk(count).indices
    values = owed[places]
    residuals[index] = owed.index_fill(0, places, 0)
    ### END SOLUTION
    mean = torch.zeros_like(gradients)
    for other_values, other_places in gather([values, places.int()]):
        mean.index_add_(0, other_places, other_values)
    return done(mean / dist.get_world_size())
