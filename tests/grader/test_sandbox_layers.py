"""Which layers are said to be in force, and what still holds where the strong ones are refused."""

import errno
import json
import os
import shutil
import signal
import sys

import pytest
import sandbox_runs
from sandbox_runs import CALLERS, bomb, daemonize, error_of, run
from waiting import run_to_end

from grader import sandbox
from grader.sandbox import cgroups, confine, kernel, landlock, layers_in_force, namespaces, seccomp
from handson import linux

MIB = 1 << 20


@pytest.fixture
def layers_anew():
    layers_in_force.layers.cache_clear()
    yield
    layers_in_force.layers.cache_clear()


def refusing(number):
    def refuse(*arguments):
        raise OSError(number, os.strerror(number), "unshare")

    return refuse


def in_a_process(function, caller="user"):
    """What the function returns in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            sandbox_runs.become(caller)
            layers_in_force.layers.cache_clear()
            sandbox_runs.tell(writing, function())
        except BaseException as error:
            sandbox_runs.tell(writing, repr(error))
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    return json.loads(sandbox_runs.until_end(reading))


def told():
    """What is in force, whether it is enough, and the sentence that says what is missing."""
    return [sorted(layers_in_force.in_force()), sandbox.strong(), sandbox.missing()]


def test_every_layer_is_listed_with_what_it_guards():
    for layer in sandbox.layers():
        assert layer.guards and layer.strength in ("strong", "second", "limit")
        assert bool(layer.why_not) != layer.in_force


def test_limits_are_always_in_force(monkeypatch, layers_anew):
    monkeypatch.setattr(kernel, "unshare", refusing(errno.EPERM))
    monkeypatch.setattr(kernel, "call", refusing(errno.ENOSYS))
    monkeypatch.setattr(kernel, "ARCHITECTURE", None)
    assert layers_in_force.in_force() - {layers_in_force.USERS} <= {layers_in_force.LIMITS, layers_in_force.CGROUPS}
    assert not sandbox.strong() and sandbox.missing()


def test_a_container_that_refuses_namespaces_is_told_how_to_start(monkeypatch, layers_anew):
    monkeypatch.setattr(kernel, "unshare", refusing(errno.EPERM))
    in_force, strong, sentence = told()
    assert not strong and layers_in_force.NETWORK not in in_force and layers_in_force.PROCESSES not in in_force
    assert "--cap-add SYS_ADMIN" in sentence and sentence.endswith(".") and "\n" not in sentence


@pytest.mark.parametrize("name, value, allows", linux.NAMESPACE_SETTINGS)
def test_the_setting_that_forbids_namespaces_is_named(name, value, allows, monkeypatch, layers_anew):
    monkeypatch.setattr(kernel, "unshare", refusing(errno.EPERM))
    monkeypatch.setattr(linux, "_setting", lambda asked: value if asked == name else None)
    assert f"`sysctl -w {name}={allows}`" in sandbox.missing()


@pytest.mark.skipif(os.geteuid() != 0 and not sandbox.strong(), reason=sandbox.missing())
def test_a_kernel_that_really_allows_no_namespaces_is_found_out():
    """In a user namespace of its own, an ordinary user can set the limit to 0."""

    def forbidden():
        namespaces.users()
        with open("/proc/sys/user/max_user_namespaces", "w") as file:
            file.write("0")
        kernel.drop_capabilities()
        return told()

    in_force, strong, sentence = in_a_process(forbidden)
    assert not strong and layers_in_force.USERS not in in_force and layers_in_force.FILES not in in_force
    assert "user.max_user_namespaces=10000" in sentence


def test_a_kernel_without_landlock_is_told_apart_from_one_with_it_switched_off(monkeypatch, layers_anew):
    monkeypatch.setattr(landlock, "abi", refusing(errno.EOPNOTSUPP))
    assert any("lsm=landlock" in layer.why_not for layer in sandbox.layers())
    layers_in_force.layers.cache_clear()
    monkeypatch.setattr(landlock, "abi", refusing(errno.ENOSYS))
    assert any("Linux 5.13" in layer.why_not for layer in sandbox.layers())


def test_an_architecture_without_a_filter_is_named(monkeypatch, layers_anew):
    monkeypatch.setattr(kernel, "ARCHITECTURE", None)
    assert any(layer.name == layers_in_force.SECCOMP and "architecture" in layer.why_not for layer in sandbox.layers())


@pytest.mark.parametrize("architecture", seccomp.ARCHITECTURES)
def test_every_filter_jumps_within_itself_and_ends_in_a_decision(architecture):
    program = seccomp.filter_for(architecture)
    steps = [
        (int.from_bytes(program[at : at + 2], sys.byteorder), program[at + 2], program[at + 3])
        for at in range(0, len(program), 8)
    ]
    assert len(steps) <= 4096 and steps[-1][0] == seccomp.RETURN
    for at, (code, if_true, if_false) in enumerate(steps):
        if code in (seccomp.EQUAL, seccomp.AT_LEAST, seccomp.ANY_OF):
            assert at + 1 + max(if_true, if_false) < len(steps)


def test_the_doctor_prints_a_table_and_a_sentence():
    ran = run_to_end([sys.executable, "-m", "grader", "doctor"])
    assert ran.returncode == 0 and ran.stderr == ""
    lines = ran.stdout.splitlines()
    assert lines[0].startswith(layers_in_force.USERS) and lines[-1].endswith(".")
    assert sum("in force" in line or "missing" in line for line in lines) >= len(layers_in_force.GUARDS)


@pytest.mark.skipif(
    layers_in_force.CGROUPS not in layers_in_force.in_force(), reason="no control groups may be created here"
)
def test_processes_share_one_bound_on_memory():
    """Each stays below the limit, both together do not."""

    def take_twice():
        taken, took = os.pipe()
        if os.fork() == 0:
            memory = take()
            os.write(took, memory[:1])
            signal.pause()
        os.read(taken, 1)
        if os.fork() == 0:
            take()
            os._exit(0)
        return os.waitstatus_to_exitcode(os.wait()[1])

    def take():
        return bytearray(b"1") * (200 * MIB)

    def bounded(memory):
        return lambda: sandbox.bound_together(sandbox.Limits(memory_bytes=memory, tmp_bytes=MIB))

    assert run(take_twice, caller=CALLERS[0], before=bounded(600 * MIB)) == 0
    assert run(take_twice, caller=CALLERS[0], before=bounded(300 * MIB)) in (
        -signal.SIGKILL,
        f"ended: {-signal.SIGKILL}",
    )


@pytest.mark.skipif(
    layers_in_force.CGROUPS not in layers_in_force.in_force(), reason="no control groups may be created here"
)
def test_groups_that_are_over_are_removed():
    def name():
        with open("/proc/self/cgroup") as file:
            return next(line.strip().rpartition("/")[2] for line in file if cgroups.NAME in line)

    old, new = (run(name, caller=CALLERS[0], before=lambda: sandbox.bound_together(sandbox.Limits())) for _ in range(2))
    assert old != new
    assert not [group for folder, _ in cgroups.places() for group in folder.glob(old)]


@pytest.mark.thorough
def test_cpu_time_is_bounded():
    def burn():
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
        while True:
            pass

    assert run(burn, cpu_seconds=1) == f"ended: {-signal.SIGKILL}"


@pytest.fixture
def only_weak_layers():
    """Done in the process that enters: as if this machine refused all namespaces."""

    def refuse():
        weak = layers_in_force.in_force() & {layers_in_force.LANDLOCK, layers_in_force.SECCOMP, layers_in_force.LIMITS}
        confine.in_force = lambda: weak

    return refuse


@sandbox_runs.needs_strong
@pytest.mark.parametrize("caller", CALLERS)
def test_without_landlock_the_tree_of_mounts_still_hides_files(caller):
    def remove_landlock():
        rest = layers_in_force.in_force() - {layers_in_force.LANDLOCK}
        confine.in_force = lambda: rest
        landlock.abi = refusing(errno.EOPNOTSUPP)

    def look():
        written = [error_of(open, f"{folder}/new", "w") for folder in ("/", "/etc", "/dev", "/usr/lib", sys.prefix)]
        others = [error_of(open, f"/proc/1/{name}") for name in ("mem", "maps", "environ", "root/etc/passwd")]
        return [os.listdir("/"), os.listdir("/etc"), written, others, error_of(os.kill, 1, signal.SIGKILL)]

    root, etc, written, others, _ = run(look, caller=caller, before=remove_landlock)
    assert not {".old", ".own", "home", "var", "sys", "run"} & set(root)
    assert not {"shadow", "hostname", "ssh"} & set(etc)
    assert set(written) <= {errno.EROFS, errno.EACCES} and set(others) <= {errno.EACCES, errno.ENOENT, errno.EPERM}


needs_landlock = pytest.mark.skipif(
    layers_in_force.LANDLOCK not in layers_in_force.in_force(), reason="this kernel offers no Landlock"
)


@needs_landlock
@pytest.mark.parametrize("abi", [1, 2, 3, 5])
def test_older_versions_of_landlock_serve_too(abi, only_weak_layers):
    def older():
        only_weak_layers()
        newest = landlock.abi()
        landlock.abi = lambda: min(abi, newest)

    def look():
        with open("new", "w") as file:
            file.write("mine")
        os.rename("new", "old")
        return [error_of(open, "/etc/shadow"), error_of(open, __file__), error_of(open, "/tmp/new", "w")]

    workplace = sandbox_runs.open_folder("workplace-")
    workplace.chmod(0o777)
    try:
        assert run(look, workplace=workplace, before=older) == [errno.EACCES] * 3
    finally:
        shutil.rmtree(workplace)


@needs_landlock
@pytest.mark.parametrize("caller", CALLERS)
def test_without_namespaces_landlock_hides_files(caller, only_weak_layers):
    workplace = sandbox_runs.open_folder("workplace-")
    (workplace / "in.txt").write_text("given")
    workplace.chmod(0o777)
    (workplace / "link").symlink_to("/etc/shadow")

    def look():
        seen = [
            error_of(open, path)
            for path in ("/etc/shadow", __file__, "link", f"/proc/{os.getppid()}/environ", "/etc/hostname")
        ]
        written = [error_of(open, path, "w") for path in ("/tmp/new", "/dev/shm/new", f"{sys.prefix}/new")]
        with open("in.txt") as file, open("out.txt", "w") as out:
            out.write(file.read())
        return [seen, written]

    try:
        seen, written = run(look, caller=caller, workplace=workplace, before=only_weak_layers)
        assert (workplace / "out.txt").read_text() == "given"
    finally:
        shutil.rmtree(workplace)
    assert set(seen + written) <= {errno.EACCES, errno.EROFS}


def test_a_control_group_that_an_earlier_process_of_the_same_number_left_is_used(tmp_path, monkeypatch):
    group = tmp_path / f"session/{cgroups.NAME}{os.getpid()}"
    group.mkdir(parents=True)
    monkeypatch.setattr(cgroups, "places", lambda: [(tmp_path / "session", 2)])
    cgroups.join(MIB, 9)
    assert (group / "cgroup.procs").read_text() == "0"


@pytest.mark.parametrize("caller", CALLERS)
def test_without_namespaces_daemons_are_killed_too(caller, only_weak_layers):
    assert run(daemonize, caller=caller, before=only_weak_layers) == "daemon"


def test_without_namespaces_processes_are_still_bounded(only_weak_layers):
    forks, error = run(bomb, processes=20, before=only_weak_layers)
    assert forks <= 20 and error == errno.EAGAIN


@sandbox_runs.needs_strong
def test_where_a_new_proc_is_refused_there_is_none():
    """As in containers, which cover parts of theirs."""

    def cover():
        namespaces.users()
        kernel.unshare(kernel.NEW_MOUNTS)
        kernel.mount("none", "/proc/sys", "tmpfs")

    def look():
        return [os.listdir("/proc"), error_of(open, "/etc/shadow"), os.getuid()]

    assert run(look, before=cover) == [[], errno.ENOENT, namespaces.INSIDE]


def test_a_sandbox_that_cannot_be_made_is_an_error():
    ended = run(print, workplace="/nowhere")
    assert ended.startswith("no sandbox: SandboxError(\"the sandbox can't be made: ")
