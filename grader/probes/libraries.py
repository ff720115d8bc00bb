"""Import all libraries that probes need once, so that a forked rank starts without delay."""

import contextlib
import importlib
import multiprocessing.popen_fork  # noqa: F401  (Chainer's updaters and iterators that start workers use these)
import multiprocessing.queues  # noqa: F401
import multiprocessing.synchronize  # noqa: F401

import PIL.PngImagePlugin  # noqa: F401  (the first image that is read or written imports it)
import torch
import torch.distributed.algorithms.join  # noqa: F401

import grader.probes.cases  # noqa: F401
import grader.probes.chainer_scripts  # noqa: F401
import grader.probes.notebooks  # noqa: F401
import grader.probes.pytorch_scripts  # noqa: F401
from grader.probes import import_of_units

# imports of the training scripts
import handson.chainer.model  # noqa: F401
import handson.chainer.stages  # noqa: F401
import handson.chainer.updaters  # noqa: F401
import handson.pytorch.all_reduces  # noqa: F401
import handson.pytorch.batches  # noqa: F401
import handson.pytorch.communicator  # noqa: F401
import handson.pytorch.experts  # noqa: F401
import handson.pytorch.pytorch_method_runs  # noqa: F401
import handson.pytorch.model  # noqa: F401
import handson.pytorch.products  # noqa: F401
import handson.pytorch.stages  # noqa: F401
import handson.pytorch.transformer  # noqa: F401
import handson.pytorch.transformer_runs  # noqa: F401
import handson.pytorch.messages  # noqa: F401
import handson.training.all_ranks  # noqa: F401
import handson.training.image_files  # noqa: F401
import handson.training.results  # noqa: F401
from handson.training import options

import_of_units("*")

# late imports of torch; a version that lacks one of these modules does not need it
for late in (
    "torch._dynamo",  # the first DistributedDataParallel: 0.8 s in every rank
    "torch.profiler._cupti_monitor",  # the first backward pass
    "torch.utils.serialization.config",  # scatter_object_list
):
    with contextlib.suppress(ImportError):
        importlib.import_module(late)

options.training_parser("00_unit/pytorch/train_cifar_unit.py", [0]).parse_args([])  # the first parser takes 2 ms
torch.set_num_threads(1)
# the first optimizer, and its first step
network = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), torch.nn.BatchNorm2d(1), torch.nn.Linear(1, 1))
# take 0.1 s together, because classes are compared and code is compiled
optimizer = torch.optim.SGD(network.parameters(), 0.1, 0.9)
for parameter in network.parameters():
    parameter.grad = torch.zeros_like(parameter)
optimizer.step()
# a rank sees no GPU, but torch.manual_seed stores the whole stack for each type of GPU, as text
for name in ("cuda", "xpu", "mtia"):
    if hasattr(torch, name):
        getattr(torch, name).manual_seed_all = lambda seed: None
torch.manual_seed(0)  # its first call reads source files
# each rank clears this cache when it forms a process group, which is slow if it is full
with contextlib.suppress(AttributeError):
    torch._dynamo.trace_rules.clear_lru_cache()
