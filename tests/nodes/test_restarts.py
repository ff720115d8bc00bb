"""A node of a job is killed: torchrun starts the ranks again, and the training ends as one that nothing interrupted."""

import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from environments import ROOT, environment_of
from node_jobs import Jobs

from handson.cluster import torchrun_nodes, virtual_nodes
from handson.pytorch import checkpoints
from handson.training import map_files

SCRIPTS = ROOT / "solutions/05_communication"
OPTIONS = "OPTIONS=-e 2 -b 100 --every 2 -o"


AGENT = """#!/bin/bash
codes=({codes})
echo "$1 $2" >>calls
[ $1 = node1 ] && {{ {first}; exit; }}
touch begun; n=$(wc -l <begun); echo >>begun
exit ${{codes[$n]}}
"""


def run_restarts(folder, codes, first="exit 0", job="1", **variables):
    """Run the job script with an agent that ends on node2 with these statuses, one after the other; on node1 it runs
    `first`. Returns (status of the job, what the agent was called with)."""
    (folder / "nodes").write_text("node1\nnode2\n")
    (folder / "handson-agent").write_text(AGENT.format(codes=" ".join(map(str, codes)), first=first))
    (folder / "handson-agent").chmod(0o755)
    environment = {
        "PATH": f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "PBS_O_WORKDIR": str(folder),
        "PBS_NODEFILE": "nodes",
        "PBS_JOBID": f"{job}.server",
    }
    command = ["bash", SCRIPTS / "run_restarts.sh"]
    done = subprocess.run(command, env=environment | variables, cwd=folder, timeout=60)
    return done.returncode, (folder / "calls").read_text().splitlines()


@pytest.mark.parametrize(("codes", "status"), [((0,), 0), ((2,), 1), ((137, 0), 0), ((137, 3), 1)], ids=str)
def test_the_job_starts_a_killed_node_once_more_and_ends_as_its_training(tmp_path, codes, status):
    found, calls = run_restarts(tmp_path, codes)
    assert found == status and sorted(call.split()[0] for call in calls) == ["node1", *len(codes) * ["node2"]]


def test_the_last_node_alone_is_to_die_and_only_once(tmp_path):
    _, calls = run_restarts(tmp_path, (137, 0), KILL_NODE="yes")
    dying = [call for call in calls if "HANDSON_KILL_NODE=1" in call]
    assert [call.split()[0] for call in dying] == ["node2"] and calls[-1] not in dying


def test_a_node_that_fails_for_good_ends_the_others(tmp_path, monkeypatch, capfd):
    """They would wait for it."""
    (tmp_path / "nodes").write_text("node1\nnode2\n")
    (tmp_path / "handson-agent").write_text("#!/bin/sh\n[ $1 = node2 ] && exit 2\nexec sleep 60\n")
    (tmp_path / "handson-agent").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "nodes"))
    monkeypatch.setattr(torchrun_nodes, "GRACE", 0)
    began = time.monotonic()
    assert torchrun_nodes.on_all_nodes(["train.py"]) is False and time.monotonic() < began + 30


def test_the_ranks_of_two_jobs_meet_at_different_ports(tmp_path):
    """At the port of another job, torchrun would become a client of that job without a word."""
    of_first, of_second = tmp_path / "1", tmp_path / "2"
    found = []
    for folder, job in ((of_first, "1"), (of_second, "2")):
        folder.mkdir()
        found += [re.search(r"rdzv-endpoint \S+:(\d+) ", call)[1] for call in run_restarts(folder, (0,), job=job)[1]]
    assert found[0] == found[1] and found[2] == found[3] and found[0] != found[2]
    with socket.create_server(("", int(found[0]))):
        again = re.search(r"rdzv-endpoint \S+:(\d+) ", run_restarts(of_first, (0,))[1][-1])[1]
    assert again not in found


def jobs_on(batch_system, folder):
    jobs = Jobs(folder, path=[environment_of(ROOT, folder / "venv")], release=batch_system == "a release")
    shutil.copytree(SCRIPTS, jobs.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("results", "*.o[0-9]*"))
    return jobs


@pytest.mark.thorough
@pytest.mark.skipif(virtual_nodes.why_not() is not None, reason=f"{virtual_nodes.why_not()}")
@pytest.mark.parametrize("batch_system", ["embedded", "a release"])
def test_a_killed_node_costs_no_number(batch_system, tmp_path):
    # torchrun and ranks start more than ten times
    jobs = jobs_on(batch_system, tmp_path)
    try:
        map_files.write("digits", tmp_path / "data/digits_files", say=lambda line: None)
        numbers = {}
        for name, more in (("whole", ""), ("killed", ",KILL_NODE=yes")):
            variables = f"{OPTIONS} results/{name},HANDSON_DATA={tmp_path / 'data'}{more}"
            numbers[name] = jobs(*"qsub -j oe -v".split(), variables, "run_restarts.sh").stdout.split(".")[0]
        for name, number in numbers.items():
            output = Path(jobs.folder, f"restarts.o{number}")
            assert jobs.finish(number)["Exit_status"] == "0", output.read_text()[-3000:]
        assert "Resuming in epoch" in output.read_text() and re.search(r"^\w+2 dies", output.read_text(), re.MULTILINE)
        assert set(checkpoints.differences(jobs.folder / "results/whole", jobs.folder / "results/killed").values()) == {
            0.0
        }
    finally:
        jobs.close()


@pytest.mark.thorough
@pytest.mark.parametrize("batch_system", ["embedded", "a release"])
def test_what_no_restart_can_mend_is_not_tried_again(batch_system, tmp_path):
    jobs = jobs_on(batch_system, tmp_path)
    try:
        variables = f"{OPTIONS} results/no_data,HANDSON_DATA={tmp_path / 'nowhere'}"
        number = jobs(*"qsub -j oe -v".split(), variables, "run_restarts.sh").stdout.split(".")[0]
        assert jobs.finish(number)["Exit_status"] == "1"
        output = Path(jobs.folder, f"restarts.o{number}").read_text()
        assert "Traceback" not in output and output.count("python -m handson images") <= 2, output
    finally:
        jobs.close()
