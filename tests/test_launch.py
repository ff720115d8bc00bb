"""Each rank has torchrun's variables under every launcher, and variables of an earlier run in the shell reach no
rank."""

import json
import os
import socket
import sys
import sysconfig
from pathlib import Path

import pytest
from environments import QUICK_START
from waiting import run_to_end

from handson.training import launch, options

ROOT = Path(__file__).resolve().parents[1]
MPIEXEC = f"{sysconfig.get_path('scripts')}/mpiexec"
NAMES = launch.TORCHRUN + launch.MEETING
LEFT_OVER = {  # by torchrun, for rank 5 of 8 on hosts that are gone
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node1.invalid",
    "MASTER_PORT": "29500",
}
OF_RANK = f"""
import json, os
from handson.training import options
options.begin_ranks(60)
os.write(1, json.dumps([os.environ[name] for name in {NAMES}]).encode() + b"\\n")  # in one piece
"""
# variables of a rank that srun has started: the last one but one of three nodes with two ranks each
OF_SRUN = {
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "2",
    "SLURM_PROCID": "4",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3)",
    "SLURM_STEP_NODELIST": "node[3-5]",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",  # of the login node, where rank 0 is not
}
OF_BATCH_SCRIPT = {"SLURM_JOB_ID": "17", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "6"}


def clean():
    """This process's environment, without the variables of any launcher."""
    ours = (*NAMES, *launch.MPIEXEC, *launch.SRUN, "TORCHELASTIC_RUN_ID", "SLURM_STEP_ID", "SLURM_JOB_ID")
    return {name: value for name, value in os.environ.items() if name not in ours}


@pytest.fixture
def prepared(monkeypatch):
    """The variables of a rank that finds the given ones at its start, without MPI."""

    def prepared(variables):
        monkeypatch.setattr(os, "environ", clean() | variables)
        launch.prepare()
        return {name: os.environ[name] for name in NAMES}

    return prepared


def started_by_mpiexec(*variables, **more):
    """What two ranks of mpiexec print, and the finished process."""
    environment = clean() | dict(*variables) | more
    done = run_to_end([MPIEXEC, "-n", "2", sys.executable, "-c", OF_RANK], env=environment, cwd=ROOT)
    return sorted(map(json.loads, done.stdout.splitlines())), done


def test_ranks_of_mpiexec_do_not_see_what_a_shell_has_of_torchrun():
    ranks, done = started_by_mpiexec(LEFT_OVER)
    assert [rank[:4] for rank in ranks] == [["0", "2", "0", "2"], ["1", "2", "1", "2"]], done.stderr
    [(address, port)] = {tuple(rank[4:]) for rank in ranks}
    assert address == "127.0.0.1" and port != LEFT_OVER["MASTER_PORT"]


def test_master_port_alone_is_where_ranks_of_mpiexec_meet():
    """A site may keep some ports free between its nodes."""
    port = launch.free_port()
    ranks, done = started_by_mpiexec(MASTER_PORT=str(port))
    assert [rank[4:] for rank in ranks] == [["127.0.0.1", str(port)]] * 2, done.stderr


def test_a_master_port_in_use_is_one_sentence():
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        ranks, done = started_by_mpiexec(MASTER_PORT=str(port))
    assert (ranks, done.returncode) == ([], 2)
    [sentence] = [line for line in done.stderr.splitlines() if line and not line.startswith("Abort(")]  # MPICH's
    assert f"MASTER_PORT {port} is in use on {os.uname().nodename}: choose another" in sentence


def test_the_variables_of_torchrun_are_taken_as_they_are(prepared):
    """Also where mpiexec has started the torchruns, one on each node; or a person has set them by hand."""
    by_torchrun = LEFT_OVER | {"TORCHELASTIC_RUN_ID": "none", "PMI_RANK": "1", "PMI_SIZE": "2"}
    assert prepared(by_torchrun) == LEFT_OVER
    assert launch.started_by() == "torchrun" and launch.launcher_rank() == 5
    assert prepared(LEFT_OVER) == LEFT_OVER


def test_a_rank_of_srun_gets_torchruns_variables_from_slurms(prepared, tmp_path, monkeypatch):
    (tmp_path / "scontrol").write_text('#!/bin/sh\n[ "$*" = "show hostnames node[3-5]" ] && printf "node%s\\n" 3 4 5\n')
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = prepared(LEFT_OVER | OF_SRUN)
    port = int(found.pop("MASTER_PORT"))
    assert found == {"RANK": "4", "WORLD_SIZE": "6", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node3"}
    assert launch.launcher_rank() == 4
    others = OF_SRUN | {"SLURM_PROCID": "1", "SLURM_LOCALID": "1"}
    assert int(prepared(others)["MASTER_PORT"]) == port, "all ranks of a step meet there"
    assert int(prepared(OF_SRUN | {"SLURM_STEP_ID": "3"})["MASTER_PORT"]) != port, "and no other step"


@pytest.mark.parametrize("variables", [{}, OF_BATCH_SCRIPT, {"RANK": "5", "WORLD_SIZE": "8"}])
def test_a_process_that_no_launcher_has_started_is_the_only_rank(prepared, variables):
    """A batch script of Slurm has SLURM_PROCID, but belongs to no step of srun's."""
    found = prepared(variables)
    assert [found[name] for name in NAMES[:5]] == ["0", "1", "0", "1", "127.0.0.1"]
    with socket.create_server(("127.0.0.1", int(found["MASTER_PORT"]))):
        pass  # the port is free


def test_a_script_that_starts_its_workers_itself_forgets_an_earlier_run(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", clean() | LEFT_OVER)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(sys, "argv", ["02_multi_gpu/pytorch/train_cifar_multi_gpu.py", "-o", str(tmp_path)])
    options.parse([0, 1])
    assert os.environ.keys().isdisjoint(NAMES)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("script", "launcher"),
    [
        ("02_multi_gpu/pytorch/train_cifar_multi_gpu.py", []),
        ("03_multi_node/pytorch/train_cifar_multi_node.py", ["-n", "2"]),
    ],
)
def test_a_training_runs_in_a_shell_that_has_variables_of_torchrun(script, launcher, tmp_path):
    """Both of task 1, which starts its workers, and of task 2."""
    command = [*([MPIEXEC, *launcher] if launcher else []), sys.executable, ROOT / "solutions" / script]
    words = ["-e", "1", "--size", "16", "-o", tmp_path]
    done = run_to_end([*command, *words], env=clean() | LEFT_OVER | QUICK_START)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["workers"], result["images"]) == (2, 1500)
