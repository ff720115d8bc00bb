"""Half precision and double buffering: communication hooks, as in hooks.py. ChainerMN has both as options
(chainer/half_and_late.py)."""

import torch
import torch.distributed as dist

from handson.pytorch.messages import done


def half(dtype, bucket):
    """Send the gradients as `dtype`, float16 or bfloat16, which halves the bytes. Return a future of their mean."""
    gradients = bucket.buffer()
    ### BEGIN SOLUTION half:
    ### divide the gradients by the number of ranks, and then convert them to `dtype`: float16
    ### overflows above 65,504. Start an all-reduce. Set `future` to
    ### work.get_future().then(function). The function gets a future whose value() is a list with
    ### the reduced tensor, and returns this tensor in the original type
    sent = (gradients / dist.get_world_size()).to(dtype)
    work = dist.all_reduce(sent, async_op=True)
    future = work.get_future().then(lambda one: one.value()[0].to(gradients.dtype))
    ### END SOLUTION
    return future


def late(pending, bucket, dtype=torch.float32):
    """Double buffering: start the all-reduce of these gradients, which runs during the next step, and return the mean
    of the previous step.

    pending: bucket.index() -> (tensor, work) of the bucket's previous all-reduce; empty in the first step, whose mean
    is zeros."""
    gradients, index = bucket.buffer(), bucket.index()
    ### BEGIN SOLUTION late:
    ### set `mean` to the tensor of the previous step's all-reduce, after you have waited for it; in
    ### the first step, set it to zeros. Then divide this step's gradients by the number of ranks,
    ### convert them to `dtype`, and start their all-reduce. Store (tensor, work) of it in
    ### pending[index]
    mean, work = pending.get(index, (torch.zeros_like(gradients), None))
    if work:
        work.wait()
    sent = (gradients / dist.get_world_size()).to(dtype)
    pending[index] = sent, dist.all_reduce(sent, async_op=True)
    ### END SOLUTION
    return done(mean.to(gradients.dtype))
