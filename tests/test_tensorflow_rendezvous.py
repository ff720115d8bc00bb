"""The processes of a TensorFlow cluster synchronise before TensorFlow starts: a process that is missing, or there
twice, is named, and no process waits forever."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

from handson.training import tensorflow_rendezvous as rendezvous

ROOT = Path(__file__).resolve().parent.parent
MEETS = """
import argparse, sys, time
from handson.training import tensorflow_rendezvous as meeting
meeting.LIMIT = float(sys.argv[1])
try:
    comm = meeting.meet(argparse.Namespace(gpu=None, lr=float(sys.argv[2]), patience=60), None, sys.argv[3].split(","))
except meeting.MeetingError as error:
    sys.exit(str(error))
if "end" in sys.argv:
    meeting.end_with_first() if comm.rank else meeting.end_together()
print(comm.rank, comm.size, comm.intra_rank, flush=True)
if "farewell" in sys.argv and comm.rank == 0:
    meeting.part()
    sys.exit()
if "end" in sys.argv:
    time.sleep(100)
if "part" in sys.argv:
    meeting.end_together()
    sys.stdin.readline()
    meeting.part()
    sys.stdin.readline()
"""


def free_ports(number):
    """Free ports below those that the kernel assigns, so that no other test gets one in the meantime."""
    found = set()
    while len(found) < number:
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port := random.randrange(10_000, 32_000))).close()
            found.add(port)
    return list(found)


def cluster(**roles):
    ports = iter(free_ports(sum(roles.values())))
    return {role: [f"127.0.0.1:{next(ports)}" for _ in range(number)] for role, number in roles.items()}


def process(of_cluster, role, index, limit=30, lr=0.1, *words):
    config = {"cluster": of_cluster, "task": {"type": role, "index": index}}
    command = [sys.executable, "-c", MEETS, str(limit), str(lr), ",".join(of_cluster), *words]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"TF_CONFIG": json.dumps(config)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(*processes, words=None):
    """(status, output, errors) of each; words: what they read."""
    found = [one.communicate(words, timeout=60) for one in processes]
    return [(one.returncode, out.strip(), errors.strip()) for one, (out, errors) in zip(processes, found)]


def test_all_processes_meet_and_know_their_places():
    of = cluster(chief=1, ps=1, worker=2)
    found = said(*(process(of, role, index) for role, index in (("worker", 1), ("chief", 0), ("worker", 0), ("ps", 0))))
    assert [one[1] for one in found] == ["3 4 3", "0 4 0", "2 4 2", "1 4 1"]
    assert all(status == 0 for status, _, _ in found)


@pytest.mark.thorough
def test_a_worker_that_never_comes_is_named_with_its_address_on_all_sides():
    of = cluster(worker=3)
    first, last = said(process(of, "worker", 0, limit=2), process(of, "worker", 2, limit=2))
    assert first[0] == 1 and f"worker 1 ({of['worker'][1]}) did not connect within 2 s" in first[2]
    assert last[0] != 0
    (alone,) = said(process(cluster(worker=2), "worker", 1, limit=1))
    assert alone[0] == 1 and "worker 0 (127.0.0.1:" in alone[2] and "did not connect within 1 s" in alone[2]


def test_two_workers_with_one_index_and_a_port_in_use_are_named():
    of = cluster(worker=2)
    host, _, port = of["worker"][1].rpartition(":")
    with socket.create_server(("", int(port))):
        (found,) = said(process(of, "worker", 1, limit=2))
    assert found[0] == 1
    assert (
        f"port {port} of 127.0.0.1, which TF_CONFIG gives to worker 1, cannot be used (Address already in use)"
        in found[2]
    )


def test_processes_with_different_options_are_named():
    of = cluster(worker=2)
    found = said(process(of, "worker", 0), process(of, "worker", 1, 30, 0.2))
    assert all(status == 1 and "rank 0 has lr 0.1, but rank 1 has 0.2" in errors for status, _, errors in found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "TF_CONFIG is not set"),
        ("{", "TF_CONFIG is malformed"),
        ("[]", "TF_CONFIG is malformed"),
        ('{"cluster": {"worker": ["a:1"]}}', "it has no 'task'"),
        ('{"cluster": {"worker": ["a"]}, "task": {"type": "worker", "index": 0}}', "an address is not host:port"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}', "there is no worker 1"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "0"}}', "there is no worker 0"),
        (
            '{"cluster": {"worker": ["a:1", "a:1"]}, "task": {"type": "worker", "index": 0}}',
            "two tasks have the same address",
        ),
    ],
)
def test_a_missing_or_malformed_tf_config_is_named(text, words):
    with pytest.raises(rendezvous.MeetingError, match=words):
        rendezvous.read(text)


def test_no_server_outlives_a_killed_chief():
    of = cluster(chief=1, ps=1, worker=1)
    chief, *servers = (process(of, role, 0, 30, 0.1, "end") for role in ("chief", "ps", "worker"))
    assert [one.stdout.readline().split()[1] for one in (chief, *servers)] == ["3"] * 3
    os.kill(chief.pid, signal.SIGKILL)
    wait_until(lambda: all(one.poll() is not None for one in servers), "the servers end with their chief")
    assert [status for status, _, _ in said(*servers)] == [0, 0]
    chief.communicate()


def test_no_server_outlives_a_chief_that_says_farewell():
    of = cluster(chief=1, ps=1, worker=1)
    chief, *servers = (process(of, role, 0, 30, 0.1, "end", "farewell") for role in ("chief", "ps", "worker"))
    assert [status for status, _, _ in said(chief, *servers)] == [0, 0, 0]


@pytest.mark.parametrize(("job", "cure"), [("", "mpiexec -n 4"), ("7.s", "-l select=2:ngpus=2:mpiprocs=2")])
def test_missing_ranks_are_asked_for_where_they_can_be(job, cure, monkeypatch):
    for name in ("PBS_JOBID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PBS_JOBID", job) if job else None
    two = {"cluster": {"worker": ["a:1", "a:2"]}, "task": {"type": "worker", "index": 0}}
    with pytest.raises(rendezvous.MeetingError, match=f"here are 2: .*{cure}"):
        rendezvous.with_parameter_server(two)


@pytest.mark.thorough
def test_a_chief_names_the_server_that_was_killed_and_all_end():
    of = cluster(chief=1, ps=1, worker=1)
    chief, server, worker = (process(of, role, 0, 30, 0.1, "end") for role in ("chief", "ps", "worker"))
    assert [one.stdout.readline().split()[1] for one in (chief, server, worker)] == ["3"] * 3
    os.kill(worker.pid, signal.SIGKILL)
    found = said(chief, server, worker)
    assert [status for status, _, _ in found] == [1, 0, -9]
    assert "the connection to worker 0 is lost: it has died" in found[0][2] and len(found[0][2].splitlines()) == 1
    assert found[2][2].endswith("was killed by SIGKILL; all ranks end")


@pytest.mark.parametrize("first", [0, 1])
def test_a_worker_that_has_parted_may_end_before_the_others(first):
    of = cluster(worker=2)
    workers = [process(of, "worker", index, 30, 0.1, "part") for index in range(2)]
    assert [one.stdout.readline().split()[1] for one in workers] == ["2"] * 2
    assert said(workers[first], words="\n\n")[0][::2] == (0, "")
    assert workers[1 - first].poll() is None
    assert said(workers[1 - first], words="\n\n")[0][::2] == (0, "")
