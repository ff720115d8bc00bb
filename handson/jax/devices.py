"""The devices that JAX computes on: threads on a core each, the virtual GPUs of one process. Call `use` before JAX
computes anything."""

import jax

from handson.errors import TrackError
from handson.training import virtual_gpus


def use(gpus):
    """Let this process train on the virtual GPUs with these ids, each a device of JAX's: it has their cores, and a
    device for each. Raises TrackError."""
    check(gpus)
    virtual_gpus.share(gpus)
    jax.config.update("jax_num_cpu_devices", len(gpus))


def check(gpus):
    """Refuse ids of virtual GPUs that are not there. Raises TrackError."""
    if missing := [gpu for gpu in gpus if gpu >= virtual_gpus.COUNT]:
        raise TrackError(f"-g: there is no GPU {missing[0]}; JAX sees those from 0 to {virtual_gpus.COUNT - 1}")
    if len(set(gpus)) < len(gpus):
        raise TrackError("-g: JAX has one device for each GPU; name each id once")


def check_batches(images, batchsize, replicas):
    """Refuse a batch size with which the last step of an epoch can't be divided: all devices of `shard_map` compute on
    as many images. images: in an epoch; batchsize: of a device. Raises TrackError."""
    if rest := images % (batchsize * replicas) % replicas:
        raise TrackError(
            f"-b: batches of {batchsize} for each of {replicas} devices leave {images % (batchsize * replicas)} of"
            f" {images:,} images for the last step, {rest} too many for parts of equal length, which shard_map needs:"
            " take another batch size"
        )
