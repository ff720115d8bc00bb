"""The devices of JAX: one thread per core, which are the virtual GPUs of one process. Call `use` before JAX computes
anything."""

import jax

from handson.errors import TrackError
from handson.training import virtual_gpus


def use(gpus):
    """Make this process train on the virtual GPUs with these ids: it gets their cores, and a JAX device for each.
    Raises TrackError."""
    check(gpus)
    virtual_gpus.share(gpus)
    jax.config.update("jax_num_cpu_devices", len(gpus))


def check(gpus):
    """Refuse ids of virtual GPUs that do not exist. Raises TrackError."""
    if missing := [gpu for gpu in gpus if gpu >= virtual_gpus.COUNT]:
        raise TrackError(f"-g: there is no GPU {missing[0]}; JAX sees those from 0 to {virtual_gpus.COUNT - 1}")
    if len(set(gpus)) < len(gpus):
        raise TrackError("-g: JAX has one device for each GPU; name each id once")


def check_batches(images, batchsize, replicas):
    """Refuse a batch size with which the last step of an epoch cannot be divided, because all devices of `shard_map`
    compute equal numbers of images. images: the images per epoch; batchsize: the images per device. Raises
    TrackError."""
    if rest := images % (batchsize * replicas) % replicas:
        raise TrackError(
            f"-b: batches of {batchsize} for each of {replicas} devices leave {images % (batchsize * replicas)} of"
            f" {images:,} images for the last step, {rest} too many for parts of equal length, which shard_map needs:"
            " take another batch size"
        )
