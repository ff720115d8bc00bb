"""Watching devices: how busy a virtual GPU's core is and what its worker has in memory, on screen and in a run's
result."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from made_results import result

from handson.profiling import usage, watch
from handson.training import results

SPIN = (
    "import os; os.sched_setaffinity(0, [{}]); a = bytearray(80 * 2**20); print('ready', flush=True)\nwhile True: pass"
)


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
        lines = [{"node": node, "cores": 2, "devices": ["GPU 0 (X)"], "begin": begin, "interval": 1.0}]
        lines += [{"running": n % 2 + 3, "devices": [[float(n % 2), 2**20 * n, 50.0 + 3 * n]]} for n in range(1200)]
        (tmp_path / f"usage_{node}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "[[1, 2,")
    found = usage.read(tmp_path)
    assert (found["begin"], found["interval"]) == (100.0, 2.0)
    assert [device["name"] for device in found["devices"]] == ["node1: GPU 0 (X)", "node2: GPU 0 (X)"]
    assert found["devices"][0]["utilisation"] == [0.5] * 600 and found["devices"][0]["memory"][0] == 2**19
    assert found["devices"][0]["energy"] == 3 * 1199
    assert found["nodes"] == [{"name": node, "running": 3.5, "cores": 2} for node in ("node1", "node2")]


def test_a_result_keeps_the_use_of_devices(tmp_path):
    devices = {
        "begin": 1.5,
        "interval": 1.0,
        "nodes": [{"name": "n", "running": 3.5, "cores": 2}],
        "devices": [{"name": "core 0", "utilisation": [1.5], "memory": [3.0], "energy": None}],
    }
    results.write(result(profiled=True, usage=devices), tmp_path)
    assert results.read(tmp_path).usage == devices


def test_a_process_records_the_use_of_its_devices_while_it_works(tmp_path, monkeypatch):
    monkeypatch.setattr(usage, "INTERVAL", 0.05)
    usage.record(tmp_path, [0])
    end = time.monotonic() + 60
    while not (found := usage.read(tmp_path)) or len(found["devices"][0]["utilisation"]) < 3:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert found["nodes"][0]["running"] >= 0 and found["nodes"][0]["cores"] == os.cpu_count()
    assert found["devices"][0]["name"].endswith(f"core {min(os.sched_getaffinity(0))} (virtual GPU)")


def test_the_screen_shows_each_device_with_its_power_where_it_tells_energy():
    lines = watch.table(
        ["GPU 0 (X)", "GPU 1 (X)"], [(97, 2**30, 1300.0), (3, 0, 10.0)], [(90, 0, 1000.0), (0, 0, 0.0)], 2
    )
    assert len(lines) == 3 and lines[0].split()[1:] == ["utilisation", "memory", "power"]
    assert re.split(r"\s{2,}", lines[1]) == ["GPU 0 (X)", "97 %", "1,024 MB", "150 W"]
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
