"""Counts the bytes of all tensors by what they hold, and refuses those beyond a limit. `handson.pytorch.memory_counter`
adds what networks hold."""

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

RESIZING = ("resize_", "resize_as_")  # operations on a tensor that is there already
# by torch's allocators, for CPUs and for GPUs
REFUSED = re.compile(r"tried to allocate ([0-9.]+) ?(?:([kmgt])i)?b", re.IGNORECASE)


class OutOfMemory(gpu_memory.OutOfMemory, torch.OutOfMemoryError):
    """Code that expects CUDA's error catches this one, too."""


class TensorCounter(TorchDispatchMode):
    """`in_use`: bytes of each of PARTS now, `total` their sum; `peak`: the same when the sum was `highest`; `most`: the
    most of each part at any moment. What operations make counts as `making`, one of PARTS, until `count` says what it
    is."""

    def __init__(self, limit=math.inf, device="cpu", name="virtual GPU", enforce=True):
        """limit: bytes; device: the type of those whose tensors count; enforce: refuse tensors beyond the limit, with
        OutOfMemory."""
        super().__init__()
        self.limit, self.device, self.name, self.enforce = limit, device, name, enforce
        self.in_use = dict.fromkeys(PARTS, 0)
        self.peak, self.most = self.in_use.copy(), self.in_use.copy()
        self.total = self.highest = 0
        self.making, self.phase = "activations", "build"  # the phase: build, forward, backward or optimize
        self.moments, self.began = [], time.perf_counter()  # what is noted of this step, or None; when it began
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
        """Count a tensor as one of PARTS, whatever it has counted as before. Raises OutOfMemory."""
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
        """Count none of the tensors that are there."""
        for held in list(self._held.values()):
            self._freed(held)

    def refusal(self, asked, operation):
        """The OutOfMemory of an operation (torch's, or words) that has asked for so many bytes."""
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
        """The storages of a tensor on the device; a sharded one has its local part."""
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
        """A storage may have another size now."""
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
        """Add what is in use now to the moments of this step."""
        if self.moments is not None and self.phase != "build":
            if torch._C._current_graph_task_id() >= 0:
                self.phase = "backward"
            self.moments.append([time.perf_counter() - self.began, self.phase, *self.in_use.values()])


class _Held(weakref.ref):
    """A storage that is counted: its `key`, `size` in bytes and `part`."""

    __slots__ = ("key", "size", "part")


@functools.cache
def _kind(function):
    """What an operation does with memory: "makes" some, "resizes" some, or neither (a view, or a change in place)."""
    if any(one.alias_info is None for one in function._schema.returns):
        return "makes"
    return "resizes" if function._schema.overload_name == "out" or _name(function) in RESIZING else ""


def _name(function):
    return function._schema.name.rpartition("::")[2]
