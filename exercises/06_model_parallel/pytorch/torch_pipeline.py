"""The same pipeline with torch.distributed.pipelining: train_pipeline.py calls these functions for the methods whose
names begin with "torch-"."""

import torch.distributed as dist
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

CHUNKS = 2  # of the network on each rank, for the schedules of make_interleaved


def make_schedule(name, network, micro_batches, loss_of, device):
    """Return PyTorch's schedule `name`, "gpipe" or "1f1b", of this rank's stage. Its `step` receives the whole batch,
    and splits it into micro-batches.

    network: the layers of this stage; micro_batches: number of micro-batches; loss_of(outputs, labels): the mean loss
    of a micro-batch.
    """
    # PUT YOUR CODE: Build a PipelineStage from the network, this stage's index, the number of stages and
    # the device. Set `schedule` to a ScheduleGPipe or a Schedule1F1B of this stage, with n_microbatches
    # and loss_fn
    raise NotImplementedError("PUT YOUR CODE: torch_schedule")
    return schedule


def make_interleaved(name, networks, micro_batches, loss_of, device):
    """Return PyTorch's schedule `name`, "interleaved" or "zero-bubble", of this rank's chunks of the network.

    networks: the layers of each chunk. Chunk 1 of rank 0 follows chunk 0 of the last rank.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    stages = [
        PipelineStage(network, chunk * size + rank, len(networks) * size, device)
        for chunk, network in enumerate(networks)
    ]
    kinds = {"interleaved": ScheduleInterleaved1F1B, "zero-bubble": ScheduleInterleavedZeroBubble}
    return kinds[name](stages, n_microbatches=micro_batches, loss_fn=loss_of)
