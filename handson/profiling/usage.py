"""How busy the devices of this machine are: GPUs by NVML, or the cores of virtual GPUs. `watch` shows it, training runs
record it.

A file of samples has a line of JSON for the devices, then one for each sample. It may be read while it is written. A
run also notes what its own processes have used of the machine, and what all have: where other programs took much, its
times say little.
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
from handson.cluster.nodes import current_node
from handson.language import speak
from handson.profiling import recording
from handson.training import gpu_memory, virtual_gpus

INTERVAL = 1.0  # seconds between the samples of a training run
OF_PROFILE = 0.1  # the same for a profiled run, which may be short
MOST = 600  # samples of a run that its result keeps; more are averaged
RESCAN = 5  # seconds after which to look for new processes; while a core has none, INTERVAL
# The share of the cores, or of a GPU, from which on what others took disturbed a run. Measured on one core: where a run
# has it alone, 3 to 4 % are others', and its throughput differs by 4 %. Others that took 7, 10, 19, 24 and 38 % cost it
# 6, 10, 17, 22 and 40 % of its throughput.
DISTURBING = 0.1

Number = Annotated[float, Meta(ge=-1e15, le=1e15)]


class Device(TypedDict):
    """What a device did, in each sample."""

    name: str
    utilisation: list[Number]  # %
    memory: list[Number]  # bytes
    energy: Number | None  # J, of the whole run
    others: NotRequired[Number | None]  # %, of other programs, mean; None where it is not known


class Node(TypedDict):
    """How the cores of a machine were used during a run. Its virtual nodes are one, as they share cores. Results of
    older versions lack what is NotRequired."""

    name: str
    cores: Number  # that the run could use
    seconds: NotRequired[Number]  # by the clock
    used: NotRequired[Number]  # seconds of a core that the run's processes computed
    others: NotRequired[Number]  # the same for all other programs


class Usage(TypedDict):
    """What the devices of a run did."""

    begin: Number  # s since 1970
    interval: Number  # s between two samples
    devices: list[Device]
    nodes: NotRequired[list[Node]]


@dataclass(frozen=True, order=True)
class Disturbance:
    """What other programs took during a run, so that its times say little."""

    share: float
    of: str  # the cores, or the device

    def __str__(self):
        return self.words()

    def words(self, runs=1):
        """The one sentence that says it, of the most disturbed of so many runs."""
        several = runs > 1
        return (
            f"other programs took {'up to ' * several}{100 * self.share:.0f} % of {self.of}: repeat"
            f" {'these runs' if several else 'the run'}"
        )


class Gpus:
    """The GPUs that this process may use. Their memory is that of all processes."""

    def __init__(self, indices=None):
        """indices: of GPUs as CUDA counts them; None: all. Raises NVMLError where there are none."""
        import pynvml

        self.nvml = pynvml
        pynvml.nvmlInit()
        visible = [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
        if visible:  # numbers, or UUIDs as Kubernetes and Slurm give them
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
        self.limits = [None] * len(self.names)  # of the memory in bytes, from the first sample on

    def sample(self):
        """Of each device: utilisation in %, memory in bytes, energy so far in J or None."""
        for number, handle in enumerate(self.handles):
            memory = self.nvml.nvmlDeviceGetMemoryInfo(handle)
            self.limits[number] = memory.total
            yield self.nvml.nvmlDeviceGetUtilizationRates(handle).gpu, memory.used, self._energy(handle)

    def others(self, processes):
        """Of each device: the utilisation in % in the last INTERVAL by all processes but these; None where it is not
        known."""
        since = int((time.time() - INTERVAL) * 1e6)
        return [self._others(handle, processes, since) for handle in self.handles]

    def _others(self, handle, processes, since):
        try:
            if linux.process_namespace() != linux.MACHINE:
                return None  # NVML has other numbers for the run's processes than they have
            samples = self.nvml.nvmlDeviceGetProcessUtilization(handle, since)
            return min(100, sum(sample.smUtil for sample in samples if sample.pid not in processes))
        except self.nvml.NVMLError_NotFound:  # nobody has used it
            return 0
        except (self.nvml.NVMLError, OSError):  # parts of a GPU (MIG) do not tell it
            return None

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
        self.before, self.workers, self.scanned = linux.busy_ticks(), {}, -math.inf
        self.limits = [None] * len(self.cores)
        self.moment = time.monotonic()

    def sample(self):
        """Of each device: utilisation in % since the last sample, memory in bytes, None."""
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
    return _gpus(gpus) or Cores(gpus)


def _gpus(gpus=None):
    """The Gpus that this process may use, or None. It does not ask CUDA: a process that has asked it must not be
    forked."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return None
    import pynvml

    try:
        return Gpus(gpus and sorted({gpu // chosen_device.parts for gpu in gpus}))
    except pynvml.NVMLError:
        return None


def count_gpus():
    """How many GPUs this process may use."""
    found = _gpus()
    return len(found.handles) if found else 0


def memory_of_gpus():
    """The bytes of each GPU that this process may use; [] where there are none."""
    found = _gpus()
    return [found.nvml.nvmlDeviceGetMemoryInfo(handle).total for handle in found.handles] if found else []


class Share:
    """What the processes of this process's run have used of the machine's cores, and what all programs have.

    They are this user's processes that run the same command in the same folder, as the ranks of this machine do,
    whoever started them, and all that these have started.
    """

    def __init__(self, cores):
        """cores: those that the run can use on this node."""
        self.cores, self.scanned = cores, time.monotonic()
        self.processes = self._processes()
        self.before = self._counters()

    def sample(self):
        """Since the last sample: the seconds, the seconds of a core that the run's processes used, and those that each
        core was used."""
        if time.monotonic() >= self.scanned + RESCAN:
            self.processes, self.scanned = self._processes(), time.monotonic()
        (then, used_before, all_before), self.before = self.before, self._counters()
        now, used, by_all = self.before
        used = max(0, sum(used.values()) - sum(used_before.values()))  # less, where a process has ended
        return {
            "seconds": round(now - then, 3),
            "used": used / linux.TICKS,
            "busy": {core: (ticks - all_before.get(core, ticks)) / linux.TICKS for core, ticks in by_all.items()},
        }

    def node(self):
        """The Node of this machine since the last sample."""
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
        found, new = set(), {pid for pid in linux.pids_of_user() if linux.command(pid) == command}
        while new:
            found |= new
            new = {child for process in new for child in linux.children(process)} - found
        return found


class Samples:
    """Writes samples of some devices to a file, and of a run's Share; one at a time, `take` by `take`."""

    def __init__(self, path, of_devices, interval, share=None):
        self.devices, self.interval, self.share = of_devices, interval, share
        self.begin(Path(path))

    def begin(self, path):
        """Begin a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        head = {"node": current_node(), "devices": self.devices.names, "begin": time.time(), "interval": self.interval}
        if self.share:
            machine = linux.boot_id()
            head |= {"machine": machine, "namespace": linux.process_namespace(), "cores": self.share.cores}
        path.write_text(json.dumps(head) + "\n")
        self.path = path

    def take(self):
        """Take a sample, add it to the file, and return it: (utilisation, memory, energy) of each device."""
        sample = list(self.devices.sample())
        line = {"devices": sample}
        if self.share:
            line["share"] = self.share.sample()
            if isinstance(self.devices, Gpus):
                line["others"] = self.devices.others(self.share.processes)
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")
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


class Recorder(threading.Thread):
    """Takes samples until this process ends, which has one Recorder at most. An error never stops the training."""

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
                except Exception:  # such as a full disk or a lost GPU, for which no training should end
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
    """Another training of this process begins, whose samples belong into `folder`."""
    if recorder := _recorder():
        with _at_work, contextlib.suppress(OSError):
            recorder.samples.begin(_path(folder))


def _path(folder):
    return Path(folder) / f"usage_{current_node()}.jsonl"


def read(folder, seconds=None):
    """The samples in a run's folder, for its result: a Usage, of MOST samples at most; None if there are none.

    seconds: what the training took that has just ended. How much it got of the cores is counted in these seconds, since
    ranks wait for each other before it. None: from the first sample on.
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
    return {"begin": begin, "interval": interval, "nodes": _nodes(of_shares), "devices": found} if found else None


def _files(folder):
    """(head, samples) of each node, without nodes of an earlier run in this folder: these wrote nothing since the
    latest began."""
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
    """The Node of each machine. of_shares: (head, samples of the share) of each node. Nodes that are virtual, or
    containers, are on one machine and use its cores together. In one process namespace each of them sees the processes
    of all, and one speaks for all; containers see their own only."""
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
    """The Disturbance of a run of so many workers; None where it had what it could use, or does not know. usage: its
    Usage, or None."""
    taken = []
    for node in (usage or {}).get("nodes", ()):
        if node.get("seconds"):
            most = node["cores"] * node["seconds"]
            wanted = max(node["used"], min(workers, node["cores"]) * node["seconds"])
            if node["others"] + wanted > (1 - DISTURBING) * most:  # else there were cores enough for all
                taken.append(Disturbance(node["others"] / most, f"the cores of {node['name']}"))
    for device in (usage or {}).get("devices", ()):
        node, _, name = device["name"].partition(": ")
        taken.append(Disturbance((device.get("others") or 0) / 100, f"{name} of {node}"))
    return max((one for one in taken if one.share >= DISTURBING), default=None)


@contextlib.contextmanager
def watched(workers, say=speak):
    """``with watched(2):`` for a measurement of so many workers, by this process and those that it starts: says at its
    end how much of the cores other programs took meanwhile, where that was so much that its times say little."""
    try:
        share = Share(sorted(os.sched_getaffinity(0)))
    except (OSError, ValueError, LookupError):  # no /proc, or an unusual one
        share = None
    yield
    with contextlib.suppress(OSError, ValueError, LookupError):
        if share and (found := disturbance({"nodes": [share.node()]}, workers)):
            say(
                f"Other programs took {100 * found.share:.0f} % of the cores meanwhile, so these times say little: run"
                " the cell again while this machine does nothing else."
            )


def _means(values, together):
    """The means of each `together` neighbours."""
    groups = [values[at : at + together] for at in range(0, len(values), together)]
    return [round(sum(group) / len(group), 1) for group in groups]
