"""Count the bytes of all tensors by kind, and refuse tensors beyond a limit. `handson.pytorch.memory_counter` adds the
tensors of networks."""

import functools
import math
import re
import time
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from handson import sizes
from handson.training import gpu_memory
from handson.training.gpu_memory import PARTS

RESIZING = ("resize_", "resize_as_")  # operations that change the size of an existing tensor
# the words of torch's allocators, for CPUs and for GPUs
REFUSED = re.compile(r"tried to allocate ([0-9.]+) ?(?:([kmgt])i)?b", re.IGNORECASE)


class OutOfMemory(gpu_memory.OutOfMemory, torch.OutOfMemoryError):
    """An error of the counter that code for CUDA's error also catches."""


class TensorCounter(TorchDispatchMode):
    """Count the tensors that operations create, as the part `making` until `count` names another part.

    `in_use`: bytes of each of PARTS now, `total` their sum; `peak`: the parts when the sum was `highest`; `most`: the
    highest value of each part.
    """

    def __init__(self, limit=math.inf, device="cpu", name="virtual GPU"):
        """Create a counter. limit: bytes; device: the device type whose tensors count."""
        super().__init__()
        self.limit, self.device, self.name, self.enforce = limit, device, name, True
        self.in_use = dict.fromkeys(PARTS, 0)
        self.peak, self.most = self.in_use.copy(), self.in_use.copy()
        self.total = self.highest = 0
        self.making, self.phase = "activations", "build"  # the phase: build, forward, backward or optimize
        self.moments, self.began = [], time.perf_counter()  # samples of this step, or None; when the step started
        self.asked = None  # the bytes that did not fit
        self._held = {}  # key of a storage -> _Held

    def __enter__(self):
        self._resize = torch.UntypedStorage.resize_
        torch.UntypedStorage.resize_ = lambda storage, size: self._resized_storage(storage, size)
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        torch.UntypedStorage.resize_ = self._resize

    def count(self, tensor, part):
        """Count a tensor as one of PARTS, even if it has been counted as another one. Raises OutOfMemory."""
        for storage in self._storages(tensor):
            held = self._held.get(storage._cdata)
            if held is None:
                self._add(storage, part, f"a tensor of the {part}")
            elif held.part != part:
                self.in_use[held.part] -= held.size
                self.total -= held.size
                held.part = part
                self._change(part, held.size)

    def forget(self):
        """Stop counting all existing tensors."""
        for held in list(self._held.values()):
            self._freed(held)

    def refusal(self, asked, operation):
        """Return the OutOfMemory of an operation (torch's, or a name) that asked for this many bytes."""
        self.asked, operation = asked, operation if isinstance(operation, str) else _name(operation)
        return OutOfMemory(
            self.name,
            asked,
            self.limit,
            self.in_use,
            operation,
            network=self.phase == "build" or self.making == "optimizer",
        )

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        try:
            made = function(*arguments, **(options or {}))
        except RuntimeError as error:  # the machine, or the GPU, has refused it
            refused = REFUSED.search(str(error))
            if not refused or self.limit == math.inf or isinstance(error, OutOfMemory):
                raise
            raise self.refusal(float(refused[1]) * 2 ** sizes.UNITS[(refused[2] or "").lower()], function) from None
        if kind := _kind(function):
            for tensor in made if isinstance(made, (tuple, list)) else (made,):
                for storage in self._storages(tensor):
                    if storage._cdata in self._held:
                        self._sized(storage)
                    elif kind == "makes":
                        self._add(storage, self.making, function)
        return made

    def _storages(self, tensor):
        """Return the storages of a tensor on the device; for a sharded tensor, the storage of its local part."""
        if not isinstance(tensor, torch.Tensor):
            return ()
        if type(tensor) is not torch.Tensor and is_traceable_wrapper_subclass(tensor):
            return [
                storage for name in tensor.__tensor_flatten__()[0] for storage in self._storages(getattr(tensor, name))
            ]
        return (tensor.untyped_storage(),) if tensor.device.type == self.device else ()

    def _add(self, storage, part, operation):
        size = storage.nbytes()
        if self.enforce and self.total + size > self.limit:
            raise self.refusal(size, operation)
        held = _Held(storage, self._freed)
        held.key, held.size, held.part = storage._cdata, size, part
        self._held[held.key] = held
        self._change(part, size)

    def _freed(self, held):
        if self._held.get(held.key) is held:
            del self._held[held.key]
            self._change(held.part, -held.size)

    def _sized(self, storage):
        """Count a storage again, because its size may have changed."""
        if (held := self._held.get(storage._cdata)) and held.size != storage.nbytes():
            more = storage.nbytes() - held.size
            if self.enforce and self.total + more > self.limit:
                raise self.refusal(more, "resize_")
            held.size += more
            self._change(held.part, more)

    def _resized_storage(self, storage, size):
        self._resize(storage, size)
        self._sized(storage)
        return storage

    def _change(self, part, size):
        self.in_use[part] += size
        self.total += size
        if self.in_use[part] > self.most[part]:
            self.most[part] = self.in_use[part]
        if self.total >= self.highest and size > 0:
            self.highest, self.peak = self.total, self.in_use.copy()
        self.note()

    def note(self):
        """Add the current use to the samples of this step."""
        if self.moments is not None and self.phase != "build":
            if torch._C._current_graph_task_id() >= 0:
                self.phase = "backward"
            self.moments.append([time.perf_counter() - self.began, self.phase, *self.in_use.values()])


class _Held(weakref.ref):
    """A counted storage: its `key`, `size` in bytes and `part`."""

    __slots__ = ("key", "size", "part")


@functools.cache
def _kind(function):
    """Return how an operation affects memory: "makes" or "resizes" it, or neither (a view, or a change in place)."""
    if any(one.alias_info is None for one in function._schema.returns):
        return "makes"
    return "resizes" if function._schema.overload_name == "out" or _name(function) in RESIZING else ""


def _name(function):
    return function._schema.name.rpartition("::")[2]
