"""Ranks that run the cells of a notebook: what each prints, hangs that are named and ended, deaths, and the end."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import ipyparallel
import psutil
import pytest
from IPython.core.interactiveshell import InteractiveShell
from waiting import wait_until

import handson.notebook
from handson.cluster import engine_jobs, follow
from handson.notebook import live_ranks

NOTEBOOK_FILE = str(Path(__file__).with_name("live_notebook.py"))
NOTEBOOK = """
import time
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance()
import handson.notebook
ranks = handson.notebook.ranks(2)
print(flush=True)
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Settings under which the queue and ipyparallel's files are those of this test alone."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.setenv("HANDSON_PBS_HOME", str(folder / "pbs"))
        patch.setenv("PATH", follow.environment()["PATH"])
        patch.setenv("HANDSON_DEVICE", "cpu")
        yield folder


@pytest.fixture(scope="module")
def ranks(home):
    shell = InteractiveShell.instance()
    ranks = handson.notebook.ranks(4)
    yield ranks
    ranks.stop()
    shell.clear_instance()


@pytest.fixture
def cell(ranks, capsys):
    """Run a cell on all ranks; returns what it prints, and its error in words."""

    def run(text, line=""):
        capsys.readouterr()
        shell = InteractiveShell.instance()
        error = shell.run_cell(f"%%px {line}\n{text}" if text else line).error_in_exec
        return capsys.readouterr().out.split("RanksError")[0].strip(), str(error or "")

    return run


def test_ranks_share_a_group_and_equal_lines_are_printed_once(cell, ranks):
    assert cell("print(world_size)") == ("ranks 0 to 3: 4", "")
    out, _ = cell("x = torch.ones(1) * rank\ndist.all_reduce(x)\nprint(rank % 2, x.item())")
    assert out == "ranks 0 and 2: 0 6.0\nranks 1 and 3: 1 6.0"
    assert ranks.pull("rank") == [0, 1, 2, 3]
    assert cell("print(rank)", "--targets 0,2")[0] == "rank 0: 0\nrank 2: 2"


def test_ranks_have_the_device_that_the_notebook_has_chosen(cell):
    assert cell("import os\nprint(os.environ['HANDSON_DEVICE'], device, repr(os.environ['CUDA_VISIBLE_DEVICES']))") == (
        "ranks 0 to 3: cpu cpu ''",
        "",
    )


@pytest.mark.thorough
def test_an_error_of_one_rank_is_shown_once_with_its_rank(cell):
    out, error = cell("print('here')\n1 / (rank - 1)")
    assert error.startswith("Rank 1:") and error.count("ZeroDivisionError") == 2  # in the heading, and in the last line
    _, error = cell("1 / 0")
    assert error.startswith("Ranks 0 to 3:") and error.count("ZeroDivisionError") == 2


@pytest.mark.thorough
def test_a_collective_that_one_rank_does_not_enter_is_named_and_ended(cell):
    cell("kept = rank")
    out, error = cell("if rank != 2:\n    dist.all_reduce(torch.ones(1))")
    assert "Ranks 0, 1 and 3 wait in all_reduce, line 2; rank 2 is idle." in out and not error
    assert cell("dist.barrier(); print(kept == rank)") == ("ranks 0 to 3: True", "")


@pytest.mark.thorough
def test_ranks_in_different_collectives_are_named_and_ended(cell):
    out, _ = cell("if rank == 1:\n    dist.recv(torch.ones(1), 0)\nelse:\n    dist.barrier()")
    assert "rank 1 waits in recv, line 2" in out and "Ranks 0, 2 and 3 wait in barrier, line 4" in out
    assert cell("dist.barrier(); print(1)") == ("ranks 0 to 3: 1", "")


@pytest.mark.thorough
def test_a_rank_that_failed_is_named_where_others_wait_for_it(cell):
    out, error = cell("if rank == 3:\n    1 / 0\ndist.barrier()")
    assert "rank 3 is idle" in out and error.startswith("Rank 3:") and "Connection closed" not in error


@pytest.mark.thorough
@pytest.mark.parametrize(
    "text", ["dist.recv(torch.ones(1), (rank + 1) % 4)", "import time\nwhile True: time.sleep(0.01)"]
)
def test_an_interrupt_frees_all_ranks(cell, text):
    threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
    out, _ = cell(text)
    assert out.startswith("Interrupted: rank 0 was in ")
    assert cell("dist.barrier(); print(1)") == ("ranks 0 to 3: 1", "")


@pytest.mark.thorough
def test_a_rank_that_dies_is_named_and_new_ones_can_be_started(cell, ranks):
    _, error = cell("import os\nif rank == 2: os._exit(3)\ndist.barrier()")
    assert "died: `ranks.restart()` starts new ones." in error
    assert "`ranks.restart()` starts new ones" in cell("print(rank)")[1]
    ranks.restart()
    assert cell("dist.barrier(); print(1)") == ("ranks 0 to 3: 1", "")


def test_no_other_user_can_reach_the_ranks(ranks):
    files = list(Path(ranks.folder).glob("security/ipcontroller-*.json"))
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600} and len(files) == 2
    assert Path(ranks.folder).stat().st_mode & 0o777 == 0o700
    assert not addresses_of(ranks.cluster), "they are reached by sockets in the folder alone"


def addresses_of(cluster):
    """The addresses at which a cluster's controller listens for connections by TCP."""
    controller = psutil.Process(cluster.controller.pid)
    return {
        connection.laddr.ip
        for process in (controller, *controller.children(recursive=True))
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }


@pytest.mark.thorough
def test_a_controller_whose_folder_is_too_long_for_sockets_listens_on_the_loopback_interface(home, tmp_path):
    cluster, client = engine_jobs.start(engines=1, nodes=1, folder=tmp_path / ("long" * 20), say=lambda line: None)
    try:
        assert addresses_of(cluster) == {"127.0.0.1"}
    finally:
        client.close()
        cluster.stop_cluster_sync()


@pytest.mark.thorough
def test_messages_that_are_not_signed_with_the_key_are_not_answered(ranks, tmp_path):
    connections = json.loads(Path(ranks.folder, "security/ipcontroller-client.json").read_text())
    assert len(connections["key"]) > 20
    (tmp_path / "other.json").write_text(json.dumps(connections | {"key": "guessed"}))
    with pytest.raises(TimeoutError):
        ipyparallel.Client(str(tmp_path / "other.json"), timeout=2)


def test_ranks_that_do_not_fit_leave_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(engine_jobs.ClusterError, match="3 engines don't fit on 2 nodes with 2 cores"):
        live_ranks.Ranks(3, "pytorch", nodes=1).restart()
    assert not list(tmp_path.iterdir())


def printed_by(notebook, path=""):
    """What a notebook prints that starts ranks and runs cells on them: see live_notebook.py."""
    environment = os.environ | {"PATH": f"{path}{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, NOTEBOOK_FILE, *notebook], capture_output=True, text=True, timeout=240, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough
def test_ranks_of_chainermn_have_a_communicator_and_are_replaced_when_they_hang(home):
    cells = ["print(comm.intra_rank, comm.allreduce_obj(rank))", "if rank == 0:\n    comm.allreduce_obj(1)"]
    out = printed_by(['2, "chainer", nodes=1', "local", *cells, "print(chainermn.__name__, comm.allreduce_obj(1))"])
    assert "rank 0: 0 1\nrank 1: 1 1\n" in out
    assert "Rank 0 waits in allreduce_obj, line 2; rank 1 is idle. All ranks are new.\n" in out
    assert out.endswith("ranks 0 and 1: chainermn 2\n")


@pytest.mark.thorough
def test_ranks_start_where_there_are_no_virtual_nodes(home, tmp_path):
    (tmp_path / "unshare").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "unshare").chmod(0o755)
    out = printed_by(["4", "local", "dist.barrier(); print(local_rank)"], path=f"{tmp_path}:")
    assert "4 ranks (ranks 0 and 1 on node1; ranks 2 and 3 on node2)" in out
    assert "ranks 0 and 2: 0\nranks 1 and 3: 1\n" in out


@pytest.mark.thorough
def test_a_notebook_in_a_job_has_its_ranks_in_another_one(home, tmp_path):
    cell = "dist.barrier(); print(rank, world_size)"
    (tmp_path / "job.sh").write_text(f"{sys.executable} {NOTEBOOK_FILE} 1 local '{cell}'\n")
    said = []
    job = follow.submit(tmp_path, *"-l select=1:ncpus=1 -j oe job.sh".split())
    follow.follow(job, say=said.append, limit=240)
    assert "rank 0: 0 1" in said, said


def processes_of(folder):
    """The processes whose command names a folder."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in file.read_bytes():
                found.append(int(file.parent.name))
    return found


@pytest.mark.thorough
def test_nothing_is_left_when_the_notebook_is_killed(home, tmp_path):
    folder = Path(tempfile.mkdtemp(prefix="test-"))  # a short path
    environment = os.environ | {"HANDSON_PBS_HOME": str(tmp_path / "pbs"), "TMPDIR": str(folder)}
    notebook = subprocess.Popen([sys.executable, "-c", NOTEBOOK], stdout=subprocess.PIPE, text=True, env=environment)
    assert "2 ranks" in notebook.stdout.readline()
    assert len(processes_of(folder)) >= 4  # two engines, the controller, mpiexec
    notebook.kill()
    wait_until(lambda: not processes_of(folder), "all processes have ended")
    assert not list(folder.glob("handson-ranks-*"))
    shutil.rmtree(folder)
