"""Watching devices: how busy a virtual GPU's core is and what its worker has in memory, on screen and in a run's
result."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_results import result
from waiting import wait_until

from handson import linux
from handson.cluster.nodes import current_node
from handson.profiling import usage, watch
from handson.training import results

ROOT = Path(__file__).resolve().parents[2]
SPIN = (
    "import os; os.sched_setaffinity(0, [{}]); a = bytearray(80 * 2**20); print('ready', flush=True)\nwhile True: pass"
)


class NVMLError(Exception):
    """As pynvml has it."""


class NVMLError_NotFound(NVMLError):
    """As pynvml has it: no process has used the GPU."""


@pytest.fixture
def worker():
    """A process that keeps the first core busy, with 80 MB."""
    core = min(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", SPIN.format(core)], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield core
        process.kill()


def test_a_busy_core_and_the_memory_of_its_worker_are_seen(worker):
    cores = usage.Cores()
    end = time.monotonic() + 60
    while True:  # until others on this machine have let the worker have its core for a while
        before = time.monotonic()
        while time.monotonic() < before + 0.2:
            pass
        samples = dict(zip(cores.cores, cores.sample()))
        utilisation, memory, energy = samples[worker]
        if utilisation > 90 and memory >= 80 * 2**20:
            break
        assert time.monotonic() < end, samples
    assert energy is None and all(0 <= busy <= 100 for busy, _, _ in samples.values())
    assert f"core {worker} (virtual GPU)" in cores.names


def test_memory_is_that_of_the_own_job_alone(worker):
    cores = usage.Cores([0])
    assert cores.cores == [worker]
    cores.job = b"another job"
    assert list(cores.sample())[0][1] == 0


def test_samples_of_all_nodes_are_read_and_long_runs_are_averaged(tmp_path):
    for node, begin in ("node1", 100.0), ("node2", 101.0):
        lines = [{"node": node, "devices": ["GPU 0 (X)"], "begin": begin, "interval": 1.0}]
        lines += [{"devices": [[float(n % 2), 2**20 * n, 50.0 + 3 * n]], "others": [n % 2]} for n in range(1200)]
        (tmp_path / f"usage_{node}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "[[1, 2,")
    found = usage.read(tmp_path)
    assert (found["begin"], found["interval"]) == (100.0, 2.0)
    assert [device["name"] for device in found["devices"]] == ["node1: GPU 0 (X)", "node2: GPU 0 (X)"]
    assert found["devices"][0]["utilisation"] == [0.5] * 600 and found["devices"][0]["memory"][0] == 2**19
    assert (found["devices"][0]["energy"], found["devices"][0]["others"]) == (3 * 1199, 0.5)


def give_gpus(monkeypatch, handles, **functions):
    """Make NVML find a GPU for each of the letters `handles`. functions: more of NVML's functions."""
    nvml = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: len(handles),
        nvmlDeviceGetHandleByIndex=handles.__getitem__,
        nvmlDeviceGetName=str,
        **functions,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize("visible, names", [(None, "ABC"), ("2,0", "CA"), ("GPU-b, 0", "BA"), ("", None), ("-1", None)])
def test_the_gpus_that_this_process_may_use_are_found_by_number_and_by_uuid(visible, names, monkeypatch):
    def by_uuid(uuid):
        if uuid != "GPU-b":
            raise NVMLError
        return "B"

    give_gpus(monkeypatch, "ABC", nvmlDeviceGetHandleByUUID=by_uuid)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = usage.devices()
    assert "".join(found.handles) == names if names else isinstance(found, usage.Cores)
    assert usage.count_gpus() == len(names or "")


def test_what_a_gpu_does_not_report_is_left_out(monkeypatch, tmp_path):
    """A part of a GPU (MIG) reports no utilisation, and a GPU with the machine's memory no memory."""

    def unknown(handle):
        raise NVMLError

    asked = ("UtilizationRates", "MemoryInfo", "TotalEnergyConsumption")
    give_gpus(monkeypatch, "A", **{f"nvmlDeviceGet{name}": unknown for name in asked})
    gpus = usage.devices()
    assert list(gpus.sample()) == [(None, None, None)]
    assert watch.table(gpus.names, list(gpus.sample()), None, 1, gpus.limits)[1].count("not reported") == 2
    assert usage.memory_of_gpus()[0] > 2**30
    samples = usage.Samples(tmp_path / "usage_node1.jsonl", gpus, 1.0)
    samples.take()
    assert usage.read(tmp_path)["devices"] == []


def test_a_virtual_node_records_its_own_gpus(tmp_path, monkeypatch):
    give_gpus(monkeypatch, "ABCD")
    (tmp_path / "nodes.json").write_text('{"node1": {"slots": [0, 1]}, "node2": {"slots": [2, 3]}}')
    monkeypatch.setenv("HANDSON_NODES", str(tmp_path / "nodes.json"))
    for node, names in ("node1", ["GPU 0 (A)", "GPU 1 (B)"]), ("node2", ["GPU 2 (C)", "GPU 3 (D)"]):
        monkeypatch.setenv("HANDSON_NODE", node)
        assert usage.devices([0, 1]).names == names


def test_a_gpu_that_virtual_nodes_share_has_one_line(tmp_path):
    for node, machine in ("node1", "a"), ("node2", "a"), ("node3", "b"):
        head = {"node": node, "machine": machine, "devices": ["GPU 0 (X)"], "begin": 1.0, "interval": 1.0}
        head |= {"namespace": "n", "cores": [0]}
        sample = {"devices": [[50.0, 1.0, None]], "share": {"seconds": 1.0, "used": 0.0, "busy": {}}}
        (tmp_path / f"usage_{node}.jsonl").write_text(f"{json.dumps(head)}\n{json.dumps(sample)}\n")
    assert [device["name"] for device in usage.read(tmp_path)["devices"]] == ["node1: GPU 0 (X)", "node3: GPU 0 (X)"]


def test_a_recorded_run_is_sampled_ten_times_a_second(tmp_path, monkeypatch):
    monkeypatch.setattr(usage, "Recorder", lambda samples: intervals.append(samples.interval))
    monkeypatch.setattr(usage, "_recorder", lambda: None)
    intervals = []
    usage.record(tmp_path, [0])
    monkeypatch.setattr(usage.recording, "plan", lambda: object())
    usage.record(tmp_path, [0])
    assert intervals == [1.0, 0.1]


def test_a_result_keeps_the_use_of_devices(tmp_path):
    devices = {
        "begin": 1.5,
        "interval": 1.0,
        "nodes": [{"name": "n", "cores": 2, "seconds": 9.0, "used": 8.5, "others": 1.5}],
        "devices": [{"name": "core 0", "utilisation": [1.5], "memory": [3.0], "energy": None}],
    }
    results.write(result(profiled=True, usage=devices), tmp_path)
    assert results.read(tmp_path).usage == devices


def test_a_process_records_the_use_of_its_devices_while_it_works(tmp_path, monkeypatch):
    monkeypatch.setattr(usage, "INTERVAL", 0.05)
    usage.record(tmp_path, [0])
    found = recorded(tmp_path)
    assert (found["nodes"][0]["name"], found["nodes"][0]["cores"]) == (current_node(), 1)
    assert found["devices"][0]["name"].endswith(f"core {min(os.sched_getaffinity(0))} (virtual GPU)")
    usage.go_on_in(tmp_path / "next")  # another training of the same process
    assert recorded(tmp_path / "next")["begin"] > found["begin"]
    usage._recorder().samples.interval = 10_000  # it would go on beside all later tests


def recorded(folder, samples=3):
    """The Usage in a folder, when so many samples are there."""

    def enough():
        found = usage.read(folder)
        return found and len(found["devices"][0]["utilisation"]) >= samples and found

    return wait_until(enough, f"{samples} samples")


class Machine:
    """Stands in for what Linux says: this process is 1, 2 is another rank of the run, which has started 3, and 4 is a
    stranger. Clock ticks that they, and the cores, have used."""

    commands = {"self": (b"train.py", "/unit"), 1: (b"train.py", "/unit"), 2: (b"train.py", "/unit")}
    commands |= {3: (b"loader", "/unit"), 4: (b"train.py", "/another")}
    family = {2: [3]}

    def __init__(self, monkeypatch):
        self.used, self.busy = dict.fromkeys((1, 2, 3, 4), 0), {0: 0, 1: 0}
        monkeypatch.setattr(linux, "TICKS", 100)
        monkeypatch.setattr(linux, "command", self.commands.get)
        monkeypatch.setattr(linux, "pids_of_user", lambda: [pid for pid in self.used if pid in self.commands])
        monkeypatch.setattr(linux, "children", lambda pid: self.family.get(pid, []))
        monkeypatch.setattr(linux, "used_ticks", lambda pid: self.used.get(pid, 0))
        monkeypatch.setattr(linux, "busy_ticks", lambda columns: dict(self.busy))

    def work(self, *ticks):
        """Add the ticks of the processes 1, 2, ..., on both cores in equal parts."""
        self.used.update({pid: self.used[pid] + more for pid, more in enumerate(ticks, start=1)})
        self.busy = {core: before + sum(ticks) / 2 for core, before in self.busy.items()}


def test_a_run_counts_its_ranks_of_this_machine_and_what_they_have_started(monkeypatch):
    machine = Machine(monkeypatch)
    share = usage.Share([0, 1])
    machine.work(50, 40, 30, 70)
    assert share.sample() | {"seconds": 0} == {"seconds": 0, "used": 1.2, "busy": {0: 0.95, 1: 0.95}}
    machine.work(50, 40, 30, 0)
    machine.used[2] += machine.used.pop(3)  # it has ended, and its parent has waited for it
    assert share.sample()["used"] == 1.2
    machine.used.pop(2)  # what a rank has used in its last second is not known
    machine.work(50)
    assert share.sample()["used"] == 0


def test_a_rank_that_a_run_starts_later_counts_in_its_first_second(monkeypatch):
    """As with mp.spawn: it starts after the count, and a short run ends before the next search for processes."""
    monkeypatch.setattr(usage, "INTERVAL", 0)
    machine = Machine(monkeypatch)
    share = usage.Share([0, 1])
    machine.used[5] = 0
    monkeypatch.setattr(machine, "family", {1: [5], 2: [3]})
    machine.work(0, 0, 0, 0, 90)
    assert share.sample()["used"] == 0.9


def shares(folder, node, cores, used, busy, machine="m", namespace=1, count=10):
    """A file of samples: the seconds of a core that the run used in each second, and those of all on each core."""
    head = {"node": node, "devices": ["core 0"], "begin": 0.0, "interval": 1.0}
    head |= {"machine": machine, "namespace": namespace, "cores": cores}
    sample = {"devices": [[0, 0, None]], "share": {"seconds": 1.0, "used": used, "busy": dict(enumerate(busy))}}
    lines = [head, *[sample] * count]
    (folder / f"usage_{node}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("namespaces, used", [((1, 1), 1.8), ((1, 2), 0.9)])
def test_other_nodes_of_the_run_on_the_same_machine_are_no_other_programs(tmp_path, namespaces, used):
    """In one process namespace each virtual node sees the ranks of both; containers see their own only."""
    shares(tmp_path, "node1", [0], used, [1.0, 0.9, 0.7], namespace=namespaces[0])
    shares(tmp_path, "node2", [1], used, [1.0, 0.9, 0.7], namespace=namespaces[1])
    shares(tmp_path, "node3", [0, 1], 0.5, [1.0, 0.5, 0.0], machine="another")
    alike = {"cores": 2, "seconds": 10.0}
    assert usage.read(tmp_path)["nodes"] == [
        {"name": "node1 and node2", "used": 18.0, "others": 1.0, **alike},
        {"name": "node3", "used": 5.0, "others": 10.0, **alike},
    ]
    os.utime(tmp_path / "usage_node3.jsonl", (-1, -1))  # left by an earlier run
    [node] = usage.read(tmp_path, 2.5)["nodes"]
    assert (node["seconds"], node["used"]) == (3, 5.4), "in the training, not before it"


@pytest.mark.parametrize(
    "namespace, samples, others",
    [
        (linux.MACHINE, [(7, 60), (8, 30), (9, 5)], 35),
        (linux.MACHINE, NVMLError_NotFound(), 0),
        (linux.MACHINE, NVMLError(), None),
        (4026532180, [(7, 60)], None),  # NVML names the numbers of the machine, which nobody knows here
    ],
)
def test_what_other_programs_take_of_a_gpu(monkeypatch, namespace, samples, others):
    def utilization(handle, since):
        if isinstance(samples, Exception):
            raise samples
        return [SimpleNamespace(pid=pid, smUtil=used) for pid, used in samples]

    gpus = object.__new__(usage.Gpus)
    gpus.handles = ["GPU 0"]
    gpus.nvml = SimpleNamespace(
        NVMLError=NVMLError, NVMLError_NotFound=NVMLError_NotFound, nvmlDeviceGetProcessUtilization=utilization
    )
    monkeypatch.setattr(linux, "process_namespace", lambda: namespace)
    assert gpus.others({7}) == [others]


@pytest.mark.thorough
def test_a_run_says_that_other_programs_took_its_core(tmp_path):
    script = ROOT / "solutions/01_single_gpu/pytorch/train_cifar_single_gpu.py"
    core = min(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            other = stack.enter_context(subprocess.Popen([sys.executable, "-c", SPIN.format(core)], stdout=-1))
            stack.callback(other.kill)
            other.stdout.readline()
        done = subprocess.run(
            [sys.executable, script, "-e", "2", "--size", "96", "-o", tmp_path],
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    disturbance = results.read(tmp_path).disturbance
    assert disturbance.share > 0.3 and disturbance.of == f"the cores of {current_node()}"
    assert f"Warning: {disturbance}." in done.stderr.splitlines() and "Warning" not in done.stdout


def test_the_screen_shows_each_device_with_its_power_where_it_tells_energy():
    lines = watch.table(
        ["GPU 0 (X)", "GPU 1 (X)"], [(97, 2**30, 1300.0), (3, 0, 10.0)], [(90, 0, 1000.0), (0, 0, 0.0)], 2
    )
    assert len(lines) == 3 and lines[0].split()[1:] == ["utilisation", "memory", "power"]
    assert re.split(r"\s{2,}", lines[1]) == ["GPU 0 (X)", "97 %", "1,024 MiB", "150 W"]
    assert "W" not in watch.table(["core 0"], [(97, 2**30, None)], None, 2)[1]


def test_the_memory_of_a_virtual_gpu_is_that_of_its_tensors_where_they_are_counted():
    core = min(os.sched_getaffinity(0))
    program = (
        "import os, sys; from handson.training import gpu_memory, virtual_gpus; virtual_gpus.pin(0); live ="
        " gpu_memory.Live(3000); live.show(1000); print(flush=True); sys.stdin.read()"
    )
    environment = os.environ | {"PBS_JOBID": "1.memory"}  # its own processes alone
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        process.stdout.readline()
        cores = usage.Cores([0])
        cores.job = b"1.memory"
        assert (cores.cores, [memory for _, memory, _ in cores.sample()], cores.limits) == ([core], [1000], [3000])
        process.stdin.close()


@pytest.mark.thorough
def test_ctrl_c_ends_with_a_summary(tmp_path):
    command = [sys.executable, "-m", "handson", "watch", "--interval", "0.1", "-o", tmp_path / "samples.jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(6):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "% busy on average" in out
    assert "\033" not in out, "only a screen is overwritten"
    assert len((tmp_path / "samples.jsonl").read_text().splitlines()) >= 2


@pytest.mark.parametrize(("others", "said"), [(100, True), (4, False)])
def test_a_measurement_says_when_other_programs_took_the_cores(monkeypatch, others, said):
    machine, lines = Machine(monkeypatch), []
    monkeypatch.setattr(usage.time, "monotonic", lambda: machine.busy[0] / 100)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    with usage.watched(2, lines.append):
        machine.work(60, 60, 0, others)
    assert lines == said * [
        "Other programs took 45 % of the cores at the same time, so these times are unreliable: run the cell again while this"
        " machine does nothing else."
    ]
