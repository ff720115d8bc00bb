"""Count the tensors of a rank (parameters, gradients, optimizer state, activations), and refuse tensors that do not fit
its GPU's memory.

`devices.use` starts the counter if `--gpu-memory` is set; scripts stay unchanged. In notebooks: ``with Counter(limit)
as counter: ...``. The buckets of DistributedDataParallel count as gradients. All other tensors count as activations:
the batch, tensors that forward keeps for backward, temporary tensors of an operation. Tensors that were created before
the network's first parameter are data on the host, and do not count.
"""

import itertools
import math
import os
import time
import weakref

import torch
import torch.distributed as dist
from torch.nn.modules import module as modules
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizers

from handson import linux
from handson.errors import TrackError
from handson.pytorch import memory_formulas
from handson.pytorch.tensor_counter import OutOfMemory, TensorCounter  # noqa: F401 - OutOfMemory for notebooks
from handson.sizes import words
from handson.training import gpu_memory
from handson.training.launch import launcher_rank

# only the last of these first steps is recorded in detail, because DistributedDataParallel then has its final buckets
STEPS = 3
# bytes that a process may allocate beyond twice its limit: libraries and fragmented memory
HEADROOM = 2**30
_counter = None  # the counter of this process, once it has started


class Counter(TensorCounter):
    """A TensorCounter that recognises the tensors of networks and optimizers. `step`: the use during a step, as samples
    [seconds since its start, "forward" | "backward" | "optimize", bytes of each of PARTS]."""

    def __init__(self, *arguments, **options):
        """See TensorCounter."""
        super().__init__(*arguments, **options)
        self.steps, self.step = 0, []
        self.saved, self.live = 0, None  # highest sum that was written into the run's folder; what `watch` observes
        self._parameters, self._optimizers, self._buckets = {}, weakref.WeakValueDictionary(), 0  # by their ids; bytes

    def __enter__(self):
        self._hooks = [
            modules.register_module_parameter_registration_hook(self._registered),
            modules.register_module_buffer_registration_hook(self._registered),
            modules.register_module_forward_pre_hook(self._begin_of_forward),
            optimizers.register_optimizer_step_pre_hook(self._begin_of_update),
            optimizers.register_optimizer_step_post_hook(self._end_of_update),
        ]
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        for hook in self._hooks:
            hook.remove()

    def know(self, parameter):
        """Count a tensor as a parameter, and the tensor that backward stores in its `grad` as gradients."""
        known = self._parameters.get(id(parameter))
        if known is None or known() is not parameter:
            self._parameters[id(parameter)] = weakref.ref(parameter)
            if parameter.requires_grad and parameter.is_leaf:
                parameter.register_post_accumulate_grad_hook(lambda parameter: self.count(parameter.grad, "gradients"))
        self.count(parameter, "parameters")

    def predicted(self):
        """Return the bytes that formulas give for each of PARTS, or None if there is no formula."""
        known = [parameter for reference in self._parameters.values() if (parameter := reference()) is not None]
        return memory_formulas.predicted(known, self._optimizers.values(), self._buckets)

    def account(self):
        """Return the counts of a rank in the form of `gpu_memory.read`, without its number."""
        limit = None if self.limit == math.inf else self.limit
        measured = {"peak": self.peak, "most": self.most, "step": self.step, "asked": self.asked}
        return {"device": self.name, "limit": limit, "predicted": self.predicted()} | measured

    def refusal(self, asked, operation):
        error = super().refusal(asked, operation)
        self.step = self.moments or self.step  # the way to the limit
        save(self)
        return error

    def _change(self, part, size):
        super()._change(part, size)
        if self.live:
            self.live.show(self.total)

    def _registered(self, module, name, tensor):
        if tensor is None or torch.nn.parameter.is_lazy(tensor):
            return
        if not self._parameters:
            self.forget()
        self.know(tensor)

    def _begin_of_forward(self, module, arguments):
        if self.phase == "build":
            # this network was created before the counter started
            for tensor in itertools.chain(module.parameters(), module.buffers()):
                self.know(tensor)
            self.began = time.perf_counter()
        self.phase, self.making = "forward", "activations"
        # it creates its buckets before the forward of its own module starts
        if isinstance(module, DistributedDataParallel):
            self._buckets, self.making = memory_formulas.buckets(module), "gradients"

    def _begin_of_update(self, optimizer, arguments, options):
        for parameter in [parameter for group in optimizer.param_groups for parameter in group["params"]]:
            self.count(parameter, "parameters")
            if parameter.grad is not None:
                self.count(parameter.grad, "gradients")
        self.phase = "optimize"
        self.note()
        if id(optimizer) not in self._optimizers:
            self.making = "optimizer"  # its first step creates its state

    def _end_of_update(self, optimizer, arguments, options):
        self.making, self.phase = "activations", "forward"
        for tensor in [tensor for state in optimizer.state.values() for tensor in state.values()]:
            if isinstance(tensor, torch.Tensor) and tensor.dim():
                self.count(tensor, "optimizer")
        if id(optimizer) not in self._optimizers:
            self.most["optimizer"] = self.in_use["optimizer"]  # without temporary tensors of its first step
        self._optimizers[id(optimizer)] = optimizer
        if optimizer is next(iter(self._optimizers.values())):  # an iteration may have steps of several optimizers
            self._end_of_step()

    def _end_of_step(self):
        self.steps, self.asked = self.steps + 1, None
        if self.moments is not None:
            self.step, self.moments = self.moments, None if self.steps == STEPS else []
            self.began = time.perf_counter()
        if self.steps <= STEPS or self.highest > self.saved:
            save(self)


def begin(device, gpu, workers=1):
    """Count the tensors of this process on its GPU from now on, if --gpu-memory is set. workers: the number of workers
    that share the GPU, each with its part of the memory. Raises TrackError."""
    global _counter
    if _counter:
        _counter.__exit__(None, None, None)
        _counter = None
    if workers > 1:
        torch.cuda.set_per_process_memory_fraction(1 / workers, device)
    if (limit := gpu_memory.limit) is None:
        return
    if device.type == "cuda":
        _counter = Counter(_limit_on_gpu(device, gpu, limit, workers), "cuda", f"GPU {gpu}")
    else:
        if limit < math.inf:  # one operation could otherwise fill the machine before it is counted
            linux.limit_growth(2 * limit + HEADROOM)
        _counter = Counter(limit, name=f"virtual GPU {gpu}")
        _counter.live = gpu_memory.Live(limit)
    _counter.__enter__()


def _in_a_child():
    """Stop counting in a process that was forked from this one, for example to load data."""
    global _counter
    if _counter:
        _counter.enforce, _counter.moments, _counter.live, _counter = False, None, None, None


os.register_at_fork(after_in_child=_in_a_child)


def count(tensor, part):
    """Count a tensor of this process as one of PARTS, if tensors are counted: for an optimizer that is not in
    torch.optim."""
    if _counter is not None:
        _counter.count(tensor, part)


def save(counter):
    """Write the counts of this process so far into the run's folder."""
    if counter is _counter:
        counter.saved = counter.highest
        gpu_memory.write(dist.get_rank() if dist.is_initialized() else launcher_rank(), counter.account())


def _limit_on_gpu(device, gpu, limit, workers):
    """Return the counter's limit in bytes on a GPU. CUDA could not refuse so exactly: it takes memory in blocks of 2 to
    20 MiB, and some operations take up to 32 MiB of working memory."""
    whole = torch.cuda.get_device_properties(device).total_memory
    share = whole / workers
    if math.inf > limit > share:
        shared = f" for each of {workers} workers" if workers > 1 else ""
        raise TrackError(
            f"--gpu-memory: GPU {gpu} has {words(share)}{shared}, less than {words(limit)}: give a smaller size"
        )
    return min(limit, share)
