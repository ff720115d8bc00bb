"""The parts of the training script of unit 10_challenge that are not its lesson: the main program, the text, and the
table of a training run."""

import math
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist

from handson.challenge_limits import LENGTH, LOSS, MEMORY, RANKS, TRAINING, UNSEEN, out_of_memory
from handson.errors import TrackError
from handson.made_text import made_text
from handson.pytorch import devices
from handson.pytorch.challenge_task import Task, loss_on
from handson.pytorch.communicator import communicator
from handson.pytorch.plain_training import WINDOWS
from handson.pytorch.tensor_counter import OutOfMemory
from handson.training import banner, method_runs, options


def train_each(methods):
    """Run the main program of the script: form the process group, and train with each method that --method names.

    methods: name -> a function of a Task that returns the network.
    """
    args = options.parse(gpus=devices.first, add_options=partial(_add_options, methods))
    dist.init_process_group(devices.backend(args.gpu))  # reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
    comm = communicator(args)
    if comm.size != RANKS:
        raise TrackError(f"the challenge is for {RANKS} ranks: start it with mpiexec -n {RANKS}", on_all_ranks=True)
    text = _text(args)
    banner.announce("multiple nodes", args, SimpleNamespace(name="text", path=args.dataset), comm.devices, comm)
    for method, seed in method_runs.runs(args):
        _train(comm, method_runs.one_run(args, method, seed), method, methods[method], text)
    dist.destroy_process_group()


def _add_options(methods, parser):
    method_runs.add_options(parser, methods)
    parser.add_argument(
        "--text", type=Path, metavar="FILE", help="your own text file. Default: a text in an invented language"
    )
    parser.set_defaults(
        dataset="an invented language", size=LENGTH, epoch=1, batchsize=WINDOWS, counted="windows of text"
    )
    if parser.get_default("gpu_memory") is None:
        # a real GPU is never this small, so its tensors are only counted
        parser.set_defaults(gpu_memory=math.inf if torch.cuda.is_available() else MEMORY)


def _text(args):
    """Return the bytes to train on, followed by the bytes to judge with. Raises TrackError."""
    if args.text is None:
        return torch.frombuffer(bytearray(made_text(args.seed, TRAINING + UNSEEN)), dtype=torch.uint8)
    args.dataset = str(args.text)
    try:
        with args.text.open("rb") as file:
            found = file.read(TRAINING + UNSEEN)
    except OSError as error:
        raise TrackError(f"--text: {args.text} cannot be read ({error.strerror})", on_all_ranks=True) from None
    if len(found) < 2 * UNSEEN:
        sentence = f"--text: {args.text} has {len(found):,} bytes, and {2 * UNSEEN:,} are needed: take a longer text"
        raise TrackError(sentence, on_all_ranks=True)
    return torch.frombuffer(bytearray(found), dtype=torch.uint8)


def _train(comm, args, method, solution, text):
    device = devices.use(args.gpu[comm.intra_rank])
    task = Task(text[:-UNSEEN], args.seed, comm.rank, comm.size, device)
    progress = method_runs.Progress(comm.rank, method, devices.wait_for_all, accuracy=False)
    try:
        network = solution(task)
    except OutOfMemory as error:
        error.args = (out_of_memory(error),)
        raise
    progress.add(lambda: loss_on(network, text[-UNSEEN:], device))
    progress.report(args, max(1, task.drawn) * comm.size)
    if comm.rank == 0:
        loss = progress.log[-1]["main/loss"]
        verdict = "reached" if loss <= LOSS else "not reached"
        print(f"Loss {loss:.3f} on text that no rank has seen: the {LOSS:g} of the challenge is {verdict}.", flush=True)
