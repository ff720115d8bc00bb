"""The doctor: every rung holds on a sound machine, and each kind of breakage is told at its own rung, with what to
do."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
import real_pbs
from waiting import run_to_end

from handson.cluster import doctor, virtual_nodes

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
HOSTS = ["n1", "n2"]


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Put a program of this name before all others on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}/stubs:{BIN}:/usr/bin:/bin")
    (tmp_path / "stubs").mkdir()

    def stub(name, script):
        (tmp_path / "stubs" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "stubs" / name).chmod(0o755)
        return tmp_path / "stubs" / name

    return stub


@pytest.fixture
def agent(stub, monkeypatch):
    """The agent, as a shell script: $1 is the host, $2 the command."""

    def agent(script):
        program = str(stub("handson-agent", script))
        monkeypatch.setattr(doctor, "_agent", lambda: program)

    return agent


def broken(rung, *arguments):
    with pytest.raises(doctor.Broken) as caught:
        rung(*arguments)
    assert caught.value.cure, "it says what to do"
    return str(caught.value), caught.value.cure


# The whole ladder ---------------------------------------------------------------


@pytest.mark.thorough
def test_on_a_sound_machine_every_rung_holds():
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PBS_", "HANDSON_"))}
    environment["PATH"] = f"{BIN}:{os.environ['PATH']}"
    done = run_to_end([sys.executable, "-m", "handson", "doctor"], cwd=ROOT, env=environment, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    marks = [line.split()[0] for line in done.stdout.splitlines()[:-1]]
    assert len(marks) == len(doctor.HERE) and set(marks) <= {"ok", "note"}
    assert "run_doctor.sh" in done.stdout.splitlines()[-1]


@pytest.mark.thorough
@pytest.mark.parametrize("whose", ["embedded", "the site's own"])
def test_in_a_job_the_rungs_between_its_nodes_hold_too(jobs, tmp_path, whose):
    if whose != "embedded":
        jobs.environment["PATH"] = f"{real_pbs.install(tmp_path / 'bin')}:{jobs.environment['PATH']}"
    out = jobs.run(f"cd {ROOT} && python -m handson doctor", select="2:mpiprocs=1")
    marks = [line.split()[0] for line in out.splitlines() if not line.startswith("handson:")]
    assert len(marks) == len(doctor.HERE) + len(doctor.IN_JOB) and set(marks) <= {"ok", "note"}, out
    if whose == "embedded":
        assert ("reached by: virtual node" in out) == (virtual_nodes.why_not() is None)
    else:
        assert "reached by: sh, pbsdsh" in out and "a real batch system's" in out


def test_it_stops_at_the_broken_rung_with_status_1(monkeypatch):
    def fails():
        raise doctor.Broken("it is not so", "make it so")

    said = []
    monkeypatch.setattr(
        doctor,
        "HERE",
        (("first", lambda: "fine"), ("second", fails), ("third", lambda: pytest.fail("not to be tried"))),
    )
    assert doctor.doctor(said.append) == 1
    assert said[0] == "ok      first: fine" and said[1] == "BROKEN  second: it is not so" and "make it so" in said[2]


@pytest.mark.thorough
def test_a_command_that_hangs_is_ended(tmp_path):
    status, _, _ = doctor.ask("sh", "-c", f"sleep 1000 & echo $! >{tmp_path}/pid; wait", limit=0.5)
    assert status is None
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/cwd").exists(), "and so is what it started"


# This machine -------------------------------------------------------------------


def test_another_python_first_on_path(stub):
    other = stub("python", "exit 0")
    what, cure = broken(doctor.python)
    assert str(other) in what and "activate" in cure


def test_packages_that_cannot_be_imported(stub, monkeypatch):
    monkeypatch.setattr(
        sys, "executable", str(stub("lonely", "echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1"))
    )
    what, cure = broken(doctor.packages)
    assert "No module named 'torch'" in what and cure == "make environment"


def test_no_mpiexec(stub, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert broken(doctor.mpi)[0] == "there is no mpiexec on PATH"


def test_an_mpiexec_of_another_mpi_than_mpi4py_uses(stub):
    other = stub("mpiexec", "echo 'mpiexec (OpenRTE) 4.1.4'")
    what, cure = broken(doctor.mpi)
    assert "Open MPI" in what and str(other) in what and "mpi4py uses MPICH" in what and "rank 0 of 1" in what
    assert "first on PATH" in cure


def test_a_site_that_wants_its_own_mpi(stub, tmp_path, monkeypatch):
    (tmp_path / "site.toml").write_text('mpi = "site"\n')
    monkeypatch.setenv("HANDSON_SITE", str(tmp_path / "site.toml"))
    what, cure = broken(doctor.mpi)
    assert str(tmp_path / "site.toml") in what and "the site's own MPI" in what and "pip uninstall mpich" in cure


def test_ranks_that_believe_to_be_alone(stub):
    stub("mpiexec", "echo rank 0 1; echo rank 0 1")
    what, cure = broken(doctor.start_here)
    assert "2 ranks, and each reports rank 0 of 1" in what and "mpi4py's MPI" in cure


def test_a_host_whose_name_has_no_address(stub, monkeypatch):
    stub("mpiexec", "echo rank 0 2; echo rank 1 2")
    assert doctor.start_here() == "mpiexec -n 2 starts ranks 0 and 1 of 2"
    monkeypatch.setattr(doctor, "OWN_ADDRESS", "import socket; socket.getaddrinfo('no-such-host.invalid', None)")
    found = doctor.start_here()
    assert isinstance(found, doctor.Note) and "--local-addr localhost" in found


@pytest.mark.parametrize(
    ("script", "says", "do"),
    [
        (
            "echo 'proxy: unable to get host address for laptop' >&2; exit 1",
            "unable to get host address for laptop",
            "/etc/hosts",
        ),
        ("echo rank 0 2", "does not start two ranks", "by hand"),
    ],
)
def test_an_mpiexec_that_does_not_start(stub, script, says, do):
    stub("mpiexec", script)
    what, cure = broken(doctor.start_here)
    assert says in what and do in cure


def test_a_real_batch_system_is_told_from_the_embedded(stub):
    assert doctor.batch().endswith("the embedded PBS") or "real" in doctor.batch(), "a machine may have a real one"
    stub("qsub", "echo pbs_version = 23.06.06")
    assert doctor.batch().endswith("stubs/qsub, a real batch system's (pbs_version = 23.06.06)")


# In a few lines, for notebooks ----------------------------------------------------


@pytest.mark.parametrize(
    "torch, words", [("2.7.1", "may fail"), ("2.8.0+cpu", None), ("2.15.3+cu130", None), ("3.0.0a0", "an older one")]
)
def test_a_torch_that_was_not_tested_is_named(torch, words):
    found = doctor.untested(torch)
    assert found is words is None or words in found


def test_the_summary_says_what_there_is_without_loading_torch():
    program = (
        "import sys; from handson.cluster.doctor import summary; summary(); sys.exit('torch' in sys.modules or 'numpy'"
        " in sys.modules)"
    )
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PBS_", "HANDSON_", "CUDA_"))
    }
    environment |= {"HANDSON_SITE": "local", "PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": ""}
    done = run_to_end([sys.executable, "-c", program], cwd=ROOT, env=environment, timeout=20)
    assert done.returncode == 0, done.stderr
    cores, gpus, batch, nodes = done.stdout.splitlines()
    assert cores.split() == ["cores", str(len(os.sched_getaffinity(0)))]
    assert gpus.split(maxsplit=1) == ["GPUs", "none, so virtual ones: a virtual GPU is a core"]
    assert batch.endswith("; site local, with 2 nodes of 2 GPUs, queue lecture")
    assert nodes.split()[2] == ("no:" if virtual_nodes.why_not() else "yes:")


# Between nodes ------------------------------------------------------------------


def test_a_job_script_without_the_launcher(monkeypatch):
    monkeypatch.delenv("HYDRA_LAUNCHER_EXEC", raising=False)
    what, cure = broken(doctor.setting, HOSTS)
    assert 'eval "$(handson-launcher)"' in cure


def test_a_host_that_runs_no_command(agent):
    agent('[ "$1" = n2 ] && { echo "ssh: connect to host n2: Connection refused" >&2; exit 255; }; exec sh -c "$2"')
    what, cure = broken(doctor.reach, HOSTS)
    assert "n2" in what and "Connection refused" in what and "handson-agent n2 hostname" in cure


def test_an_environment_that_other_nodes_cannot_see(agent):
    agent(f'[ "$1" = n2 ] && {{ echo "sh: 1: {sys.executable}: not found" >&2; exit 127; }}; exec sh -c "$2"')
    what, cure = broken(doctor.environment, HOSTS)
    assert what.startswith("n2 cannot use this environment")
    assert "not found" in what
    assert "file system that all nodes share" in cure


PBSDSH = """({script}) >>job_output 2>&1"""


def test_a_real_pbsdsh_hands_back_no_output(agent, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "DELAY", 0.1)
    agent(PBSDSH.format(script='exec sh -c "$2"'))
    assert doctor.reach(HOSTS) == "a command runs on each of them"
    assert doctor._on("n2", "echo", "there") == (0, "there\n", "")
    assert "can be reached from n1, n2" in doctor.ports(HOSTS)
    agent(PBSDSH.format(script='[ "$1" = n2 ] && exit 3; exec sh -c "$2"'))
    assert (
        broken(doctor.reach, HOSTS)[0].startswith("sh cannot run a command on n2")
        or "on n2" in broken(doctor.reach, HOSTS)[0]
    )
    agent(
        PBSDSH.format(
            script=f'[ "$1" = n2 ] && set -- "$1" "$(echo "$2" | sed s:{tmp_path}:/nowhere:g)"; exec sh -c "$2"'
        )
    )
    what, cure = broken(doctor.environment, HOSTS)
    assert what.startswith("n2 cannot use")
    assert f"it left no answer in the folder {tmp_path}" in what
    assert "all nodes share" in cure
    agent(PBSDSH.format(script='echo "$2" | grep -q create_connection && exit 1; exec sh -c "$2"'))
    assert "cannot connect to port" in broken(doctor.ports, HOSTS)[0]
    assert not list(tmp_path.glob(".doctor-*")), "nothing stays behind"


@pytest.fixture
def answers(monkeypatch):
    """Let each host answer what HOST would print there: its name, its address, its interfaces."""

    def answers(**hosts):
        monkeypatch.setattr(doctor, "_on", lambda host, *words: (0, json.dumps(hosts[host]), ""))

    return answers


def host(name, address, **interfaces):
    return {"name": name, "address": address, "interfaces": {"lo": "127.0.0.1", **interfaces}}


def test_a_host_whose_name_is_a_loopback_address(answers):
    """Debian's installer writes it so: then every rank but its own host's would call itself."""
    answers(n1=host("n1", "127.0.1.1", eth0="10.0.0.1"), n2=host("n2", "10.0.0.2", eth0="10.0.0.2"))
    what, cure = broken(doctor.address, HOSTS)
    assert "127.0.1.1, a loopback address" in what and "eth0 10.0.0.1" in what and "GLOO_SOCKET_IFNAME=eth0" in cure


@pytest.mark.parametrize("seen", ["10.9.9.9", None])
def test_a_host_that_is_something_else_here(answers, monkeypatch, seen):
    answers(n1=host("n1", "10.0.0.1", eth0="10.0.0.1"), n2=host("n2", "10.0.0.2", eth0="10.0.0.2"))

    def resolve(name):
        if not seen:
            raise OSError("unknown")
        return seen

    monkeypatch.setattr(doctor.socket, "gethostbyname", resolve)
    what, _ = broken(doctor.address, HOSTS)
    assert ("n1 is 10.9.9.9 here, but has no such address itself" in what) if seen else ("n1 has no address on" in what)


def test_a_port_that_is_blocked(agent):
    agent("echo 'TimeoutError: timed out' >&2; exit 1")
    what, cure = broken(doctor.ports, HOSTS)
    assert "cannot connect to port" in what and "timed out" in what and "firewall" in cure and "MASTER_PORT" in cure


@pytest.fixture
def node_file(tmp_path, monkeypatch):
    (tmp_path / "nodefile").write_text("n1\nn1\nn2\nn2\n")
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "nodefile"))


def test_an_mpiexec_that_does_not_reach_all_nodes(stub, node_file):
    stub("mpiexec", "echo 'proxy on n2: Permission denied' >&2; exit 1")
    what, _ = broken(doctor.start_there, HOSTS)
    assert "mpiexec -n 4" in what and "Permission denied" in what


def test_ranks_that_do_not_meet(stub, node_file):
    stub("mpiexec", "echo 'DistNetworkError: The client socket has timed out. error' >&2; exit 1")
    what, cure = broken(doctor.meet, HOSTS)
    assert "do not connect over gloo" in what and "timed out" in what and "GLOO_SOCKET_IFNAME" in cure


# The page -----------------------------------------------------------------------


def test_the_page_describes_every_rung_in_its_order_with_right_and_wrong_output():
    page = (ROOT / "docs/launching.md").read_text()
    names = [name for name, _ in doctor.HERE + doctor.IN_JOB]
    sections = re.split(r"^\*\*([a-z ]+)\*\* - ", page, flags=re.MULTILINE)
    assert sections[1::2] == names
    for name, section in zip(names, sections[2::2]):
        assert f"    ok      {name}: " in section
        assert f"    BROKEN  {name}: " in section or f"    note    {name}: " in section
