"""How busy the devices of this machine are: GPUs by NVML, or the cores of virtual GPUs. `watch` shows it, training runs
record it.

A file of samples has a line of JSON for the devices, then one for each sample. It may be read while it is written. A
sample also counts the processes that want a core, as other programs on the machine make a run's times meaningless.
"""

import contextlib
import json
import math
import os
import threading
import time
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta

from handson import linux
from handson.cluster.nodes import current_node
from handson.training import gpu_memory, virtual_gpus

INTERVAL = 1.0  # seconds between the samples of a training run
MOST = 600  # samples of a run that its result keeps; more are averaged
RESCAN = 5  # samples after which to look for new processes; while a core has none, every sample does


Number = Annotated[float, Meta(ge=-1e15, le=1e15)]


class Device(TypedDict):
    """What a device did, in each sample."""

    name: str
    utilisation: list[Number]  # %
    memory: list[Number]  # bytes
    energy: Number | None  # J, of the whole run


class Node(TypedDict):
    """How busy a node was."""

    name: str
    running: Number  # processes that were computing or waited for a core, mean
    cores: Number


class Usage(TypedDict):
    """What the devices of a run did."""

    begin: Number  # s since 1970
    interval: Number  # s between two samples
    devices: list[Device]
    nodes: NotRequired[list[Node]]


class Gpus:
    """The GPUs that this process may use. Their memory is that of all processes."""

    def __init__(self, indices=None):
        """indices: of GPUs as CUDA counts them; None: all. Raises NVMLError where there are none."""
        import pynvml

        self.nvml = pynvml
        pynvml.nvmlInit()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        physical = [int(word) for word in visible if word.strip().isdigit()] or range(pynvml.nvmlDeviceGetCount())
        indices = range(len(physical)) if indices is None else [index for index in indices if index < len(physical)]
        self.handles = [pynvml.nvmlDeviceGetHandleByIndex(physical[index]) for index in indices]
        self.names = [
            f"GPU {index} ({pynvml.nvmlDeviceGetName(handle)})" for index, handle in zip(indices, self.handles)
        ]
        self.limits = [None] * len(self.names)  # of the memory in bytes, from the first sample on

    def sample(self):
        """Of each device: utilisation in %, memory in bytes, energy so far in J or None."""
        for number, handle in enumerate(self.handles):
            memory = self.nvml.nvmlDeviceGetMemoryInfo(handle)
            self.limits[number] = memory.total
            yield self.nvml.nvmlDeviceGetUtilizationRates(handle).gpu, memory.used, self._energy(handle)

    def _energy(self, handle):
        try:
            return self.nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000
        except self.nvml.NVMLError:
            return None


class Cores:
    """Virtual GPUs: how busy their cores are, with any process; the memory of this user's processes that are pinned to
    each core.

    Where these processes count their tensors (--gpu-memory), it is the tensors' memory. `limits`: of the memory in
    bytes; None: not limited.
    """

    def __init__(self, gpus=None):
        """gpus: ids of virtual GPUs; memory then counts processes of this batch job only. None: one for each core that
        this process may use."""
        self.job = None if gpus is None else _job("self")
        self.cores = sorted({virtual_gpus.core_of(gpu) for gpu in gpus}) if gpus is not None else virtual_gpus.cores()
        self.names = [f"core {core} (virtual GPU)" for core in self.cores]
        self.before, self.workers, self.samples = linux.busy_ticks(), {}, 0
        self.limits = [None] * len(self.cores)
        self.moment = time.monotonic()

    def sample(self):
        """Of each device: utilisation in % since the last sample, memory in bytes, None."""
        if self.samples % RESCAN == 0 or self.workers.keys() != set(self.cores):
            self.workers = self._pinned()
        self.samples += 1
        busy, moment = linux.busy_ticks(), time.monotonic()
        passed = max(moment - self.moment, 1e-3)
        for number, core in enumerate(self.cores):
            workers = self.workers.get(core, ())
            counted = [found for found in map(gpu_memory.live, workers) if found]
            self.limits[number] = min((limit for _, limit in counted if limit < math.inf), default=None)
            memory = sum(in_use for in_use, _ in counted) if counted else sum(map(_memory, workers))
            utilisation = min(100 * (busy[core] - self.before[core]) / linux.TICKS / passed, 100)
            yield round(utilisation, 1), memory, None
        self.before, self.moment = busy, moment

    def _pinned(self):
        """core -> the ids of this user's processes that may run on it alone."""
        found = {}
        for process in linux.pids_of_user():
            try:
                cores = os.sched_getaffinity(process)
                if len(cores) == 1 and (self.job is None or _job(process) == self.job):
                    found.setdefault(cores.pop(), []).append(process)
            except OSError:
                continue  # it has ended
        return found


def _job(process):
    """The number of the batch job that a process was started in, as bytes; b"" outside of one."""
    variables = linux.environment(process)
    return variables.get(b"PBS_JOBID") or variables.get(b"SLURM_JOB_ID") or b""


def _memory(process):
    """The bytes that a process has in memory; 0 when it has ended."""
    try:
        return linux.memory(process)[1]
    except (OSError, ValueError):
        return 0


def devices(gpus=None):
    """Gpus or Cores, whichever this machine has; gpus: ids as in -g, None: all."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") != "":
        import pynvml

        try:
            return Gpus(gpus)
        except pynvml.NVMLError:
            pass
    return Cores(gpus)


class Samples:
    """Writes samples of some devices to a file; one at a time, `take` by `take`."""

    def __init__(self, path, of_devices, interval):
        self.path, self.devices = Path(path), of_devices
        self.path.parent.mkdir(parents=True, exist_ok=True)
        head = {
            "node": current_node(),
            "cores": os.cpu_count(),
            "devices": of_devices.names,
            "begin": time.time(),
            "interval": interval,
        }
        self.path.write_text(json.dumps(head) + "\n")

    def take(self):
        """Take a sample, add it to the file, and return it: (utilisation, memory, energy) of each device."""
        sample = list(self.devices.sample())
        with open(self.path, "a") as file:
            file.write(json.dumps({"running": linux.running(), "devices": sample}) + "\n")
        return sample


# Held while a sample is taken, and while this process forks: otherwise a child could inherit a lock that nobody
# releases.
_at_work = threading.RLock()
os.register_at_fork(
    before=lambda: _at_work.acquire(timeout=2), after_in_parent=lambda: _release(), after_in_child=lambda: _release()
)


def _release():
    with contextlib.suppress(RuntimeError):  # not acquired within 2 s, because a sample hangs
        _at_work.release()


def record(folder, gpus):
    """Sample the devices `gpus` (ids as in -g) into `folder` from now on, until this process ends. An error never stops
    the training."""
    try:
        samples = Samples(Path(folder) / f"usage_{current_node()}.jsonl", devices(gpus), INTERVAL)
        threading.Thread(target=_keep_sampling, args=(samples,), name="usage of devices", daemon=True).start()
    except (OSError, RuntimeError):  # no /proc, a full disk, no more threads
        return


def _keep_sampling(samples):
    due = time.monotonic()
    while True:
        due += INTERVAL
        time.sleep(max(0, due - time.monotonic()))
        with _at_work:
            try:
                samples.take()
            except Exception:  # such as a full disk or a lost GPU, for which no training should end
                return


def read(folder):
    """The samples in a run's folder, for its result: a Usage, of MOST samples at most; None if there are none."""
    found, of_nodes, begin, interval = [], [], None, INTERVAL
    for path in sorted(Path(folder).glob("usage_*.jsonl")):
        try:
            lines = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        except (OSError, ValueError):
            continue
        if len(lines) < 2:
            continue
        head, samples = lines[0], lines[1:]
        together = -(-len(samples) // MOST)
        begin, interval = min(begin or head["begin"], head["begin"]), head["interval"] * together
        running = sum(sample["running"] for sample in samples) / len(samples)
        of_nodes.append({"name": head["node"], "running": round(running, 1), "cores": head["cores"]})
        for number, name in enumerate(head["devices"]):
            columns = [[sample["devices"][number][column] for sample in samples] for column in range(3)]
            energy = None if columns[2][0] is None else round(columns[2][-1] - columns[2][0], 1)
            found.append(
                {
                    "name": f"{head['node']}: {name}",
                    "utilisation": _means(columns[0], together),
                    "memory": _means(columns[1], together),
                    "energy": energy,
                }
            )
    return {"begin": begin, "interval": interval, "nodes": of_nodes, "devices": found} if found else None


def _means(values, together):
    """The means of each `together` neighbours."""
    groups = [values[at : at + together] for at in range(0, len(values), together)]
    return [round(sum(group) / len(group), 1) for group in groups]
