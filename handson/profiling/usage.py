"""Sample the utilisation of this machine's devices: GPUs with NVML, or the cores of virtual GPUs. `watch` shows it, and
training runs record it.

A file of samples has a line of JSON for the devices, then one for each sample. It may be read while it is written. A
run also records how much of the machine its own processes have used, and all programs: if other programs have used
much, the run's times are unreliable.
"""

import contextlib
import json
import math
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta

from handson import chosen_device, linux
from handson.cluster.nodes import current_node, gpu_of_machine
from handson.language import speak
from handson.profiling import recording
from handson.training import gpu_memory, virtual_gpus

INTERVAL = 1.0  # seconds between the samples of a training run
OF_PROFILE = 0.1  # the same in a profiled run, which may be short
MOST = 600  # samples that a run's result keeps; more are averaged
RESCAN = 5  # seconds between searches for new processes; INTERVAL as long as a core has none
# Other programs that take this share of the cores, or of a GPU, disturb a run. Measured on one core: in a run without
# other programs, the system takes 3 to 4 %, and throughput varies by 4 %. Programs that took 7, 10, 19, 24 and 38 %
# reduced the throughput by 6, 10, 17, 22 and 40 %.
DISTURBING = 0.1

Number = Annotated[float, Meta(ge=-1e15, le=1e15)]


class Device(TypedDict):
    """A device, with the values of each sample."""

    name: str
    utilisation: list[Number]  # %
    memory: list[Number]  # bytes
    energy: Number | None  # the joules of the whole run
    others: NotRequired[Number | None]  # mean use by other programs in %; None if unknown


class Node(TypedDict):
    """The use of a machine's cores during a run. Its virtual nodes count as one node, because they share cores. Results
    of older versions lack the fields marked NotRequired."""

    name: str
    cores: Number  # the cores that the run could use
    seconds: NotRequired[Number]  # elapsed time
    used: NotRequired[Number]  # core seconds of the run's processes
    others: NotRequired[Number]  # core seconds of all other programs


class Usage(TypedDict):
    """The use of a run's devices."""

    begin: Number  # s since 1970
    interval: Number  # s between two samples
    devices: list[Device]
    nodes: NotRequired[list[Node]]


@dataclass(frozen=True, order=True)
class Disturbance:
    """The share that other programs took during a run, if it makes the run's times unreliable."""

    share: float
    of: str  # the cores, or the device

    def __str__(self):
        return self.words()

    def words(self, runs=1):
        """Return the sentence on it; runs: the number of runs, of which this one was disturbed most."""
        share = f"{100 * self.share:.0f}"
        if runs > 1:
            return f"other programs took up to {share} % of {self.of}: repeat these runs"
        return f"other programs took {share} % of {self.of}: repeat the run"


class Gpus:
    """The GPUs that this process may use. Their memory includes all processes."""

    def __init__(self, indices=None):
        """Open the GPUs with these CUDA indices, or with None all GPUs. Raises NVMLError if there are none."""
        import pynvml

        self.nvml = pynvml
        pynvml.nvmlInit()
        visible = [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
        if visible:  # numbers, or UUIDs in Kubernetes and Slurm
            by_uuid = pynvml.nvmlDeviceGetHandleByUUID
            handles = [
                pynvml.nvmlDeviceGetHandleByIndex(int(one)) if one.isdigit() else by_uuid(one) for one in visible
            ]
        else:
            handles = list(map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount())))
        indices = range(len(handles)) if indices is None else [index for index in indices if index < len(handles)]
        self.handles = [handles[index] for index in indices]
        self.names = [
            f"GPU {index} ({pynvml.nvmlDeviceGetName(handle)})" for index, handle in zip(indices, self.handles)
        ]
        self.limits = [None] * len(self.names)  # each device's bytes of memory, which the first sample sets

    def sample(self):
        """Return (utilisation in %, memory in bytes, energy so far in J) of each device. A value is None if the device
        does not report it: parts of a GPU (MIG) report no utilisation, and GPUs with the machine's memory no memory."""
        for number, handle in enumerate(self.handles):
            rates = self.reported(self.nvml.nvmlDeviceGetUtilizationRates, handle)
            memory = self.reported(self.nvml.nvmlDeviceGetMemoryInfo, handle)
            energy = self.reported(self.nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
            self.limits[number] = memory and memory.total
            yield rates and rates.gpu, memory and memory.used, None if energy is None else energy / 1000

    def others(self, processes):
        """Return the utilisation in % of each device in the last INTERVAL by all processes except these, or None if it
        is unknown."""
        since = int((time.time() - INTERVAL) * 1e6)
        return [self._others(handle, processes, since) for handle in self.handles]

    def _others(self, handle, processes, since):
        try:
            if linux.process_namespace() != linux.MACHINE:
                return None  # inside a container, NVML's process numbers differ
            samples = self.nvml.nvmlDeviceGetProcessUtilization(handle, since)
            return min(100, sum(sample.smUtil for sample in samples if sample.pid not in processes))
        except self.nvml.NVMLError_NotFound:  # no process has used the GPU
            return 0
        except (self.nvml.NVMLError, OSError):  # parts of a GPU (MIG) do not report it
            return None

    def reported(self, ask, handle):
        """Return the answer of one of NVML's functions, or None if the device has none."""
        try:
            return ask(handle)
        except self.nvml.NVMLError:
            return None


class Cores:
    """Virtual GPUs: the utilisation of their cores by all processes, and the memory of this user's processes that are
    pinned to them.

    If these processes count their tensors (--gpu-memory), it is the tensors' memory. `limits` contains the limits of
    the memory in bytes, or None for no limit.
    """

    def __init__(self, gpus=None):
        """Open these virtual GPUs; memory then counts only processes of this batch job. None means one for each core
        that this process may use."""
        self.job = None if gpus is None else _job("self")
        self.cores = sorted({virtual_gpus.core_of(gpu) for gpu in gpus}) if gpus is not None else virtual_gpus.cores()
        self.names = [f"core {core} (virtual GPU)" for core in self.cores]
        self.before, self.workers, self.scanned = linux.busy_ticks(), {}, -math.inf
        self.limits = [None] * len(self.cores)
        self.moment = time.monotonic()

    def sample(self):
        """Return (utilisation in % since the last sample, memory in bytes, None) of each device."""
        busy, moment = linux.busy_ticks(), time.monotonic()
        if moment >= self.scanned + (RESCAN if self.workers.keys() == set(self.cores) else INTERVAL):
            self.workers, self.scanned = self._pinned(), moment
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
        """Return core -> the ids of this user's processes that may run only on it."""
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
    """Return the number of the batch job in which a process was started, as bytes; b"" outside a job."""
    variables = linux.environment(process)
    return variables.get(b"PBS_JOBID") or variables.get(b"SLURM_JOB_ID") or b""


def _memory(process):
    """Return the resident memory of a process in bytes, or 0 if it has ended."""
    try:
        return linux.memory(process)[1]
    except (OSError, ValueError):
        return 0


def devices(gpus=None):
    """Return this machine's Gpus, or Cores if it has none. gpus: ids as in -g, or None for all GPUs."""
    return _gpus(gpus) or Cores(gpus)


def _gpus(gpus=None):
    """Return the Gpus that this process may use, or None. It does not call CUDA, because a process that has called it
    must not be forked."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return None
    import pynvml

    try:
        found = Gpus()
        if not gpus or not found.handles:
            return found
        parts = chosen_device.parts
        return Gpus(sorted({gpu_of_machine(gpu, len(found.handles) * parts) // parts for gpu in gpus}))
    except pynvml.NVMLError:
        return None


def count_gpus():
    """Return the number of GPUs that this process may use."""
    found = _gpus()
    return len(found.handles) if found else 0


def memory_of_gpus():
    """Return the bytes of memory of each GPU that this process may use, or [] if there are none. A GPU without memory
    of its own has that of the machine."""
    if (found := _gpus()) is None:
        return []
    of_machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    reported = (found.reported(found.nvml.nvmlDeviceGetMemoryInfo, handle) for handle in found.handles)
    return [memory.total if memory else of_machine for memory in reported]


class Share:
    """The machine's core time that the processes of this run have used, and that all programs have used.

    The run's processes are this user's processes with the same command and folder, which are the ranks on this machine
    under any launcher, and all processes that they have started.
    """

    def __init__(self, cores):
        """Start counting. cores: the cores that the run can use on this node."""
        self.cores = cores
        self.scanned = self.extended = time.monotonic()
        self.processes = self._processes()
        self.before = self._counters()

    def sample(self):
        """Return, since the last sample: the seconds, the core seconds of the run's processes, and the busy seconds of
        each core."""
        moment = time.monotonic()
        if moment >= self.scanned + RESCAN:
            self.processes, self.scanned, self.extended = self._processes(), moment, moment
        elif moment >= self.extended + INTERVAL / 2:  # ranks that the run's processes have started since
            self.processes, self.extended = _with_descendants(self.processes), moment
        (then, used_before, all_before), self.before = self.before, self._counters()
        now, used, by_all = self.before
        used = max(0, sum(used.values()) - sum(used_before.values()))  # negative if a process has ended
        return {
            "seconds": round(now - then, 3),
            "used": used / linux.TICKS,
            "busy": {core: (ticks - all_before.get(core, ticks)) / linux.TICKS for core, ticks in by_all.items()},
        }

    def node(self):
        """Return the Node of this machine since the last sample."""
        self.scanned = -math.inf
        sample = self.sample()
        busy = sum(sample["busy"].get(core, 0) for core in self.cores)
        return {
            "name": current_node(),
            "cores": len(self.cores),
            "seconds": sample["seconds"],
            "used": sample["used"],
            "others": max(0, busy - sample["used"]),
        }

    def _counters(self):
        used = {process: linux.used_ticks(process) for process in self.processes}
        return time.monotonic(), used, linux.busy_ticks(linux.BY_PROGRAMS)

    def _processes(self):
        command = linux.command("self")
        return _with_descendants({pid for pid in linux.pids_of_user() if linux.command(pid) == command})


def _with_descendants(processes):
    """Return these processes, and all that they have started."""
    found, new = set(), processes
    while new:
        found |= new
        new = {child for process in new for child in linux.children(process)} - found
    return found


class Samples:
    """Write samples of some devices, and of a run's Share, to a file; each `take` adds one."""

    def __init__(self, path, of_devices, interval, share=None):
        self.devices, self.interval, self.share = of_devices, interval, share
        self.begin(Path(path))

    def begin(self, path):
        """Start a new file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        head = {"node": current_node(), "devices": self.devices.names, "begin": time.time(), "interval": self.interval}
        if self.share:
            machine = linux.boot_id()
            head |= {"machine": machine, "namespace": linux.process_namespace(), "cores": self.share.cores}
        path.write_text(json.dumps(head) + "\n")
        self.path = path

    def take(self):
        """Take a sample, add it to the file, and return (utilisation, memory, energy) of each device."""
        sample = list(self.devices.sample())
        line = {"devices": sample}
        if self.share:
            line["share"] = self.share.sample()
            if isinstance(self.devices, Gpus):
                line["others"] = self.devices.others(self.share.processes)
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")
        return sample


# Held while a sample is taken, and while this process forks: otherwise a child could inherit a lock that is never
# released.
_at_work = threading.RLock()
os.register_at_fork(
    before=lambda: _at_work.acquire(timeout=2), after_in_parent=lambda: _release(), after_in_child=lambda: _release()
)


def _release():
    with contextlib.suppress(RuntimeError):  # not acquired within 2 s, because a sample hangs
        _at_work.release()


class Recorder(threading.Thread):
    """Take samples until this process ends. A process has at most one Recorder. An error never stops the training."""

    def __init__(self, samples):
        super().__init__(name="usage of devices", daemon=True)
        self.samples = samples
        self.start()

    def run(self):
        due = time.monotonic()
        while True:
            due += self.samples.interval
            time.sleep(max(0, due - time.monotonic()))
            with _at_work:
                try:
                    self.samples.take()
                except Exception:  # such as a full disk or a lost GPU; it must not stop the training
                    return


def _recorder():
    return next((thread for thread in threading.enumerate() if isinstance(thread, Recorder)), None)


def record(folder, gpus):
    """Sample the devices `gpus` (ids as in -g) into `folder` from now on, until this process ends."""
    # no /proc or an unusual one, a full disk, no more threads
    with contextlib.suppress(OSError, RuntimeError, ValueError, LookupError):
        of_devices = devices(gpus)
        share = Share(of_devices.cores if isinstance(of_devices, Cores) else sorted(os.sched_getaffinity(0)))
        samples = Samples(_path(folder), of_devices, OF_PROFILE if recording.plan() else INTERVAL, share)
        if recorder := _recorder():
            recorder.samples = samples
        else:
            Recorder(samples)


def go_on_in(folder):
    """Write the samples of another training run of this process to `folder` from now on."""
    if recorder := _recorder():
        with _at_work, contextlib.suppress(OSError):
            recorder.samples.begin(_path(folder))


def _path(folder):
    return Path(folder) / f"usage_{current_node()}.jsonl"


def read(folder, seconds=None):
    """Return the samples in a run's folder as a Usage of at most MOST samples, or None if there are none.

    seconds: the duration of the training run that has just ended. The use of cores is counted only in these seconds,
    because ranks wait for each other before. None means: starting at the first sample.
    """
    found, of_shares, begin, interval, gpus = [], [], None, INTERVAL, set()
    for head, samples in _files(folder):
        together = -(-len(samples) // MOST)
        begin, interval = min(begin or head["begin"], head["begin"]), head["interval"] * together
        last = samples if seconds is None else samples[-math.ceil(max(seconds / head["interval"], 1)) :]
        if "machine" in head:
            of_shares.append((head, [sample["share"] for sample in last]))
        for number, name in enumerate(head["devices"]):
            gpu = head.get("machine", head["node"]), name
            if name.startswith("GPU") and gpu in gpus:
                continue  # virtual nodes of one machine share its GPUs
            gpus.add(gpu)
            columns = [[sample["devices"][number][column] for sample in samples] for column in range(3)]
            if None in columns[0] + columns[1]:
                continue  # the device does not report them
            energy = None if columns[2][0] is None else round(columns[2][-1] - columns[2][0], 1)
            others = [sample["others"][number] for sample in last if "others" in sample]
            found.append(
                {
                    "name": f"{head['node']}: {name}",
                    "utilisation": _means(columns[0], together),
                    "memory": _means(columns[1], together),
                    "energy": energy,
                    "others": None if None in others or not others else round(sum(others) / len(others), 1),
                }
            )
    if begin is None:
        return None
    return {"begin": begin, "interval": interval, "nodes": _nodes(of_shares), "devices": found}


def _files(folder):
    """Return (head, samples) of each node, without nodes of an earlier run in this folder, which have written nothing
    since the newest one started."""
    found = []
    for path in sorted(Path(folder).glob("usage_*.jsonl")):
        try:
            lines = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            if len(lines) > 1:
                found.append((lines[0], lines[1:], path.stat().st_mtime))
        except (OSError, ValueError):
            continue
    latest = max((head["begin"] for head, _, _ in found), default=0)
    return [(head, samples) for head, samples, written in found if written >= latest]


def _nodes(of_shares):
    """Return the Node of each machine. of_shares: (head, samples of the share) of each node.

    Virtual nodes and containers on one machine use its cores together. In one process namespace, each node counts the
    processes of all, so only the first one's counts are used; containers count only their own.
    """
    machines = {}
    for head, samples in of_shares:
        machines.setdefault(head["machine"], {}).setdefault(head["namespace"], []).append((head, samples))
    found = []
    for namespaces in machines.values():
        every = [head for of_namespace in namespaces.values() for head, _ in of_namespace]
        cores = sorted({core for head in every for core in head["cores"]})
        spoken = [of_namespace[0][1] for of_namespace in namespaces.values()]
        seconds = sum(sample["seconds"] for sample in spoken[0])
        busy = sum(sample["busy"].get(str(core), 0) for sample in spoken[0] for core in cores)
        used = sum(sample["used"] for samples in spoken for sample in samples)
        found.append(
            {
                "name": " and ".join(sorted(head["node"] for head in every)),
                "cores": len(cores),
                "seconds": round(seconds, 1),
                "used": round(used, 2),
                "others": round(max(0, busy - used), 2),
            }
        )
    return found


def disturbance(usage, workers):
    """Return the Disturbance of a run with this many workers, or None if other programs left enough cores, or if it is
    unknown. usage: its Usage, or None."""
    taken = []
    for node in (usage or {}).get("nodes", ()):
        if node.get("seconds"):
            most = node["cores"] * node["seconds"]
            wanted = max(node["used"], min(workers, node["cores"]) * node["seconds"])
            if node["others"] + wanted > (1 - DISTURBING) * most:  # otherwise there were enough cores for all
                taken.append(Disturbance(node["others"] / most, f"the cores of {node['name']}"))
    for device in (usage or {}).get("devices", ()):
        node, _, name = device["name"].partition(": ")
        taken.append(Disturbance((device.get("others") or 0) / 100, f"{name} of {node}"))
    return max((one for one in taken if one.share >= DISTURBING), default=None)


@contextlib.contextmanager
def watched(workers, say=speak):
    """Context manager for a measurement with this many workers, in this process and its children: ``with watched(2):``.
    At the end, it prints how much of the cores other programs took, if that makes the measured times unreliable."""
    try:
        share = Share(sorted(os.sched_getaffinity(0)))
    except (OSError, ValueError, LookupError):  # no /proc, or an unusual one
        share = None
    yield
    with contextlib.suppress(OSError, ValueError, LookupError):
        if share and (found := disturbance({"nodes": [share.node()]}, workers)):
            say(
                f"Other programs took {100 * found.share:.0f} % of the cores at the same time, so these times are"
                " unreliable: run the cell again while this machine does nothing else."
            )


def _means(values, together):
    """Return the means of groups of `together` neighbours."""
    groups = [values[at : at + together] for at in range(0, len(values), together)]
    return [round(sum(group) / len(group), 1) for group in groups]
