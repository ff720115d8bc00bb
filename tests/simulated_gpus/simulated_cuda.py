"""The Python side of simulated GPUs: torch.cuda, and the collectives of tensors on GPUs."""

import contextlib
import os
import time
import warnings
from types import SimpleNamespace

from pynvml import MEMORY

_asked = _initialized = _forked = False


def _after_fork():
    """A child process cannot use CUDA if its parent has asked for it, except through NVML."""
    global _forked
    _forked = _asked or _initialized


os.register_at_fork(after_in_child=_after_fork)


def add(torch, gpus):
    """Make torch find simulated GPUs. gpus: the compiled module."""
    _add_devices(torch, gpus)
    _add_streams(torch, gpus)
    _add_data_parallel(torch)
    _add_collectives(torch, gpus)
    _add_profiler(torch)
    resize = torch.UntypedStorage.resize_

    def resize_storage(self, size):
        if self.device.type != "cuda":
            return resize(self, size)
        gpus.resize_storage(self, size)
        return self

    torch.UntypedStorage.resize_ = resize_storage


def _add_devices(torch, gpus):
    def is_available():
        global _asked
        _asked = _asked or not os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK")
        return gpus.count() > 0

    def initialize():
        global _initialized
        if _forked:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        if not gpus.count():
            raise RuntimeError("No CUDA GPUs are available")
        _initialized = True

    def index(device=None):
        if not isinstance(device, (int, type(None))):
            device = torch.device(device).index
        return gpus.current() if device is None else device

    def set_device(device):
        initialize()
        gpus.use(index(device))

    def properties(device=None):
        initialize()
        if index(device) >= gpus.count():
            raise AssertionError("Invalid device id")
        return SimpleNamespace(name="Simulated GPU", total_memory=MEMORY, major=9, minor=0, multi_processor_count=100)

    def exchange(device):
        before = gpus.current()
        gpus.use(device)
        return before

    def set_fraction(part, device=None):
        initialize()
        gpus.limit(index(device), int(part * MEMORY))

    def stats(device=None):
        current, peak = gpus.used(index(device)), gpus.peak(index(device))
        return {
            f"{kind}_bytes.all.{when}": size
            for kind in ("allocated", "reserved")
            for when, size in (("current", current), ("peak", peak))
        }

    cuda = torch.cuda
    cuda.default_generators = (torch.random.default_generator,) * gpus.count()
    for name, function in {
        "is_available": is_available,
        "device_count": lambda: gpus.count() * is_available(),
        "init": initialize,
        "_lazy_init": initialize,
        "is_initialized": lambda: _initialized and not _forked,
        "_is_in_bad_fork": lambda: _forked,
        "_is_compiled": lambda: True,
        "current_device": gpus.current,
        "set_device": set_device,
        "_exchange_device": exchange,
        "_maybe_exchange_device": exchange,
        "get_device_name": lambda device=None: properties(device).name,
        "get_device_properties": properties,
        "get_device_capability": lambda device=None: (9, 0),
        "synchronize": lambda device=None: initialize(),
        "memory_allocated": lambda device=None: gpus.used(index(device)),
        "max_memory_allocated": lambda device=None: gpus.peak(index(device)),
        "reset_peak_memory_stats": lambda device=None: gpus.reset_peak(index(device)),
        "memory_stats": stats,
        "set_per_process_memory_fraction": set_fraction,
        "empty_cache": lambda: None,
        "is_bf16_supported": lambda including_emulation=True: True,
    }.items():
        setattr(cuda, name, function)
    for name in ("setDevice", "exchangeDevice", "maybeExchangeDevice"):
        setattr(torch._C, f"_cuda_{name}", exchange)
    torch._C._cuda_getDevice = gpus.current
    torch._C._cuda_getDeviceCount = gpus.count
    torch._C._cuda_getCurrentRawStream = lambda device: 0
    torch._C._nccl_version, torch._C._nccl_version_suffix = lambda: 0, lambda: b""


def _add_streams(torch, gpus):
    class Event:
        def __init__(self, enable_timing=False, **_):
            self.moment = None

        def record(self, stream=None):
            torch.cuda.init()
            self.moment = time.perf_counter()

        def synchronize(self):
            pass

        def query(self):
            return True

        def elapsed_time(self, later):
            return 1000 * (later.moment - self.moment)

        wait = record

    class Stream:
        def __init__(self, device=None, priority=0, **_):
            torch.cuda.init()
            self.device = torch.device("cuda", gpus.current())
            self.stream_id = self.device_index = 0
            self.device_type = 1

        def record_event(self, event=None):
            event = event or Event()
            event.record()
            return event

        def wait_stream(self, other):
            pass

        wait_event = wait_stream

        def synchronize(self):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    class CUDAGraph:
        def replay(self):
            pass

    cuda = torch.cuda
    cuda.Event = torch.Event = Event
    cuda.Stream = torch.Stream = Stream
    cuda.CUDAGraph = CUDAGraph
    cuda.current_stream = cuda.default_stream = lambda device=None: Stream()
    cuda.set_stream = lambda stream: None
    cuda.stream = cuda.graph = lambda *_, **__: contextlib.nullcontext()
    cuda.is_current_stream_capturing = lambda: False
    for name in ("range_push", "range_pop", "mark"):
        setattr(cuda.nvtx, name, lambda *_: None)


def _add_data_parallel(torch):
    """Add what torch.nn.DataParallel needs."""

    def at(gpu):
        return torch.device("cuda", gpu)

    def scatter(tensor, devices, sizes, dimension, streams):
        parts = tensor.split(sizes, dimension) if sizes else tensor.chunk(len(devices), dimension)
        return tuple(part.to(at(gpu)) for part, gpu in zip(parts, devices))

    def gather(tensors, dimension, gpu):
        return torch.cat([tensor.to(at(gpu)) for tensor in tensors], dimension)

    def broadcast(tensors, devices, size):
        return [[tensor.to(at(gpu)) for tensor in tensors] for gpu in devices]

    def add_coalesced(inputs, destination=None, buffer_size=None):
        return tuple(sum(tensor.to(at(destination)) for tensor in tensors) for tensors in zip(*inputs))

    torch._C._scatter, torch._C._gather, torch._C._broadcast_coalesced = scatter, gather, broadcast
    torch.nn.parallel.comm.reduce_add_coalesced = add_coalesced


COLLECTIVES = """allreduce_ allreduce_coalesced_ broadcast_ reduce_ allgather_ _allgather_base_
    allgather_into_tensor_coalesced_ gather_ scatter_ reduce_scatter_ _reduce_scatter_base_
    reduce_scatter_tensor_coalesced_ alltoall_ alltoall_base_""".split()
FLAT = ("_allgather_base_", "_reduce_scatter_base_")  # NCCL compares their sizes, but gloo their shapes
MESSAGES = ["send", "recv_", "recv_any_source_"]


def _add_collectives(torch, gpus):
    """Add the collectives of tensors on GPUs: gloo's, on the same memory."""
    import torch.distributed.distributed_c10d as c10d
    from torch.utils._pytree import tree_map_only

    class ProcessGroupNCCL(c10d.ProcessGroupGloo):
        class Options:
            pass

        def __init__(self, store, rank, size, options):
            super().__init__(store, rank, size, options._timeout)

    c10d.ProcessGroupNCCL, c10d._NCCL_AVAILABLE = ProcessGroupNCCL, True
    new_group, cpu = c10d._new_process_group_helper, torch.device("cpu")

    def new_group_with_host(*arguments, **options):
        """A group with NCCL alone needs a backend for the host's memory, too."""
        group, store = new_group(*arguments, **options)
        if isinstance(group, c10d.ProcessGroup) and cpu not in group._device_types:
            nccl = group._get_backend(torch.device("cuda"))
            group._register_backend(cpu, c10d.ProcessGroup.BackendType.GLOO, nccl)
        return group, store

    c10d._new_process_group_helper = new_group_with_host
    host = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

    def on_host(name):
        operator = getattr(torch.ops.c10d, name).default

        def run(*arguments):
            group = next(one for one in arguments if isinstance(one, torch.ScriptObject))
            if name in MESSAGES and "nccl" not in c10d.get_backend_config(c10d.ProcessGroup.unbox(group)):
                raise RuntimeError("writev: Bad address: gloo sends and receives the host's memory only")
            arguments_on_host = tree_map_only(torch.Tensor, gpus.on_host, arguments)
            if name in FLAT:
                arguments_on_host = tree_map_only(torch.Tensor, torch.flatten, arguments_on_host)
            found = operator.redispatch(host, *arguments_on_host)
            if name != "allreduce_":
                return (arguments[0], *found[1:]) if isinstance(found, tuple) else found
            tensors, work = arguments[0], c10d.Work.unbox(found[1])
            done = torch.futures.Future(devices=[tensors[0].device])
            work.get_future().add_done_callback(lambda future: _end(done, future, tensors))
            return tensors, torch._C._distributed_c10d._create_work_from_future(done).boxed()

        return run

    gpus.collectives = torch.library.Library("c10d", "IMPL")  # they last as long as this object
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they replace those of PyTorch
        for name in COLLECTIVES + MESSAGES:
            gpus.collectives.impl(name, on_host(name), "CUDA", allow_override=True)


def _end(done, of_gloo, tensors):
    """End the future of an all-reduce, which hooks use, with the tensors on GPUs."""
    try:
        of_gloo.value()
        done.set_result(tensors)
    except Exception as error:
        done.set_exception(error)


def _add_profiler(torch):
    from torch.profiler import ProfilerActivity

    class Profile(torch.profiler.profile):
        """A profile without the activity of GPUs."""

        def __init__(self, *arguments, activities=(), **options):
            super().__init__(*arguments, activities=[ProfilerActivity.CPU], **options)

    torch.profiler.profile = Profile
