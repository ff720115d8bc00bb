"""The probe of challenge.py: a rank of a training run on virtual nodes, with its own memory."""

import datetime
import os

import numpy
import torch
import torch.distributed as dist

from grader.probes.gap_code import GapCode, filled
from grader.sandbox.rank import RankEnded, StudentMistake, reported_error
from grader.sandbox import Limits
from grader.verdict import OUT_OF_MEMORY
from handson.challenge_limits import out_of_memory
from handson.pytorch import plain_training
from handson.pytorch.challenge_task import Task
from handson.pytorch.memory_counter import Counter, OutOfMemory
from handson.training import virtual_gpus

MEETING = datetime.timedelta(seconds=60)


def train(rank, ranks, source, told, text):
    """Train with the student's `train`, or with the plain solution if there is no source. Return the peak memory in
    bytes, the predicted speed-up, and on rank 0 the parameters of the network."""
    torch.set_num_threads(1)
    cores = len(virtual_gpus.cores())
    # if ranks share cores, the ranks of one node share them: otherwise one node alone could get all cores
    virtual_gpus.pin(rank if cores >= ranks else rank * cores // ranks)
    os.environ |= {"GLOO_SOCKET_IFNAME": "eth0", "RANK": str(rank), "WORLD_SIZE": str(ranks)}
    store = dist.TCPStore(told["address"], told["port"], ranks, rank == 0, MEETING)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    task = Task(torch.from_numpy(numpy.array(text)), told["seed"], rank, ranks, torch.device("cpu"))
    module = GapCode(source).module if source else plain_training
    predicted = _number(getattr(module, "SPEED_UP", None))  # read before anything is measured
    with Counter(told["memory"], name=f"virtual GPU {rank}") as counter:
        try:
            network = _call(module, task, told["plain_steps"])
        except OutOfMemory as error:
            words = {"status": OUT_OF_MEMORY, "message": out_of_memory(error)}
            raise RankEnded(reported_error(error, Limits()) | words) from error
    dist.barrier()  # all ranks wait here, because a rank that ends closes its connections
    return {"memory": counter.highest, "speed_up": predicted, "network": _parameters(network) if rank == 0 else []}


def prediction(rank, ranks, source, case):
    """Return the predicted speed-up."""
    return {"value": GapCode(source).run().as_number("SPEED_UP")}


def _call(module, task, plain_steps):
    function = getattr(module, "train", None)
    if function is None:
        raise StudentMistake("the function `train` is missing: put it back")
    if module is plain_training:
        return function(task, steps=plain_steps or plain_training.STEPS)
    with filled():
        return function(task)


def _number(thing):
    """Convert a number of any kind to a float, and anything else to 0.0."""
    try:
        return float(thing)
    except (TypeError, ValueError):
        return 0.0


def _parameters(network):
    """Return the numbers of a trained network, in the order of its parameters."""
    if not isinstance(network, torch.nn.Module):
        raise StudentMistake("`train` returns no network on rank 0: return the network of task.network()")
    return [parameter.detach().float().numpy() for parameter in network.parameters()]
