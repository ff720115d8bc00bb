"""What a student's code can do to other processes, to the network and to the machine, and that nothing of it is
left."""

import ctypes
import errno
import faulthandler
import fcntl
import mmap
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest
import sandbox_runs
from sandbox_runs import CALLERS, bomb, daemonize, error_of, run

from grader import sandbox
from grader.sandbox import kernel, landlock
from grader.sandbox.limits import KEPT

MIB = 1 << 20
libc = ctypes.CDLL(None, use_errno=True)

pytestmark = [pytest.mark.thorough, sandbox_runs.needs_strong, pytest.mark.parametrize("caller", CALLERS)]


@pytest.fixture
def bystander():
    """A process outside, of the user who grades."""
    process = subprocess.Popen(["sleep", "600"], env={"SECRET": "42"})
    yield process
    process.kill()
    process.wait()


def error_of_call(name, *arguments):
    """The error of a function of the C library."""
    return ctypes.get_errno() if getattr(libc, name)(*arguments) == -1 else 0


def test_no_other_process_is_seen(bystander, caller):
    def look():
        return [int(name) for name in os.listdir("/proc") if name.isdigit()] == [os.getpid()]

    assert run(look, caller=caller) is True
    assert run(error_of, os.listdir, f"/proc/{bystander.pid}", caller=caller) == errno.ENOENT


def test_no_other_process_is_signalled(bystander, caller):
    def attack():
        errors = [error_of(os.kill, pid, signal.SIGKILL) for pid in (bystander.pid, os.getppid(), -1)]
        return [*errors, error_of(os.killpg, 1, signal.SIGKILL)]

    assert 0 not in run(attack, caller=caller)
    assert bystander.poll() is None


def test_a_rank_does_not_end_its_peers_or_their_parent(caller):
    if landlock.abi() < 6:
        pytest.skip("Landlock keeps signals apart from Linux 6.12 on")

    def attack(rank):
        return [error_of(os.kill, pid, signal.SIGKILL) for pid in range(1, 20) if pid != os.getpid()]

    answers = run(attack, ranks=2, caller=caller)
    assert len(answers) == 2 and not any(0 in errors for errors in answers)


def test_a_rank_does_not_limit_its_peers_or_their_parent(caller):
    def attack():
        return [error_of(resource.prlimit, pid, resource.RLIMIT_CPU, (0, 0)) for pid in range(1, 5)]

    assert run(attack, caller=caller) == [errno.EPERM] * 4


def test_a_rank_neither_kills_itself_nor_its_parent_nor_sets_limits_so_that_the_system_must_have_killed_it(caller):
    x86 = kernel.ARCHITECTURE == "x86-64"

    def attack():
        rank, parent = os.getpid(), os.getppid()
        errors = [error_of(os.kill, pid, signal.SIGKILL) for pid in (rank, parent, 0, -1, -rank)]
        errors += [
            error_of(signal.pthread_kill, threading.get_ident(), signal.SIGKILL),
            error_of(signal.pidfd_send_signal, os.pidfd_open(rank), signal.SIGKILL),
            error_of(resource.prlimit, 0, resource.RLIMIT_CPU, (0, 0)),
            error_of_call("syscall", 160 if x86 else 164, resource.RLIMIT_CPU, b"\0" * 16),
        ]
        read_end, _ = os.pipe()
        timer, anything = struct.pack("qii48x", 0, signal.SIGKILL, 0), ctypes.create_string_buffer(8)
        # signals that the kernel sends later: when a file can be read, a timer has run down, a child has ended
        errors += [
            error_of(fcntl.fcntl, read_end, 10, signal.SIGKILL),
            error_of_call("syscall", 222 if x86 else 107, 0, timer, anything),
            error_of_call("syscall", 56 if x86 else 220, signal.SIGKILL, 0, 0, 0, 0),
        ]
        if (child := os.fork()) == 0:
            os.kill(rank, 0)  # other signals may be sent
            os._exit(error_of(os.kill, rank, signal.SIGKILL))
        return [*errors, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]

    assert run(attack, caller=caller) == [errno.EPERM] * 13


def test_a_rank_ends_what_it_has_started(caller):
    def kill():
        if (child := os.fork()) == 0:
            signal.pause()
        os.kill(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert run(kill, caller=caller) == -signal.SIGKILL


def test_no_process_is_traced(caller):
    def attack():
        attach = 16
        child = os.fork()
        if child == 0:
            signal.pause()
        errors = [error_of_call("ptrace", attach, pid, 0, 0) for pid in (1, child)]
        os.kill(child, signal.SIGKILL)
        return [*errors, error_of(open, "/proc/1/mem", "rb"), error_of(open, "/proc/1/environ", "rb")]

    assert 0 not in run(attack, caller=caller)


def test_peers_cannot_read_each_others_memory(caller):
    def attack(rank):
        others = [pid for pid in range(1, 20) if pid != os.getpid()]
        return [error_of(open, f"/proc/{pid}/{name}") for pid in others for name in ("mem", "maps", "environ", "fd/0")]

    assert all(0 not in errors for errors in run(attack, ranks=2, caller=caller))


@pytest.mark.parametrize("prepared", [False, True])
def test_nothing_outlives_the_sandbox(prepared, caller):
    """`run` reads the pipe of the sandbox to its end, which comes only when the daemon is dead."""
    assert run(daemonize, prepared=prepared, caller=caller) == "daemon"


@pytest.mark.parametrize("prepared", [False, True])
def test_all_is_over_when_the_process_outside_is_killed(prepared, caller):
    began, begun = os.pipe()

    def endless():
        os.fork()
        os.write(begun, b"x")
        while True:
            signal.pause()

    folder = sandbox_runs.open_folder("sandbox-")
    try:
        outer, reading = sandbox_runs.start(endless, folder=folder, caller=caller, prepared=prepared, keep=[begun])
        os.close(begun)
        assert os.read(began, 1) == b"x"
        os.kill(outer, signal.SIGKILL)
        os.waitpid(outer, 0)
        assert sandbox_runs.until_end(reading) == b""
    finally:
        os.close(began)
        shutil.rmtree(folder)


def test_a_fork_bomb_ends_at_the_limit(caller):
    forks, error = run(bomb, caller=caller, processes=20)
    assert error == errno.EAGAIN and 10 <= forks <= 20


def test_memory_is_bounded(caller):
    def flood():
        pieces = []
        while True:
            pieces.append(bytes(16 * MIB))

    assert run(flood, caller=caller, memory_bytes=64 * MIB) == "MemoryError"


def test_memory_that_no_limit_counts_is_refused(caller):
    def attack():
        return [error_of_call("shmget", 0, 4096, 0o1600), error_of(os.memfd_create, "flood")]

    assert run(attack, caller=caller) == [errno.EPERM, errno.EPERM]


def test_open_files_are_bounded(caller):
    def flood():
        files = []
        try:
            while True:
                files.append(os.dup(1))
        except OSError as error:
            return [len(files) < 64, error.errno]

    assert run(flood, caller=caller, open_files=64) == [True, errno.EMFILE]


def test_no_core_is_dumped(caller):
    def crash():
        child = os.fork()
        if child == 0:
            os.abort()
        _, status = os.wait()
        return [
            os.WTERMSIG(status),
            os.WCOREDUMP(status),
            os.listdir("."),
            list(resource.getrlimit(resource.RLIMIT_CORE)),
        ]

    assert run(crash, caller=caller) == [signal.SIGABRT, False, [], [0, 0]]


def test_nobody_outside_is_reached_over_the_network(caller):
    listener = socket.create_server(("127.0.0.1", 0))
    listener6 = socket.create_server(("::1", 0), family=socket.AF_INET6) if socket.has_ipv6 else None
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0sandbox-test-{os.getpid()}")
    abstract.listen()
    with listener, abstract:
        addresses = [listener.getsockname(), ("192.0.2.1", 80), abstract.getsockname()]
        if listener6:
            addresses.append(listener6.getsockname())

        def connect():
            return [error_of(connect_to, address) for address in addresses]

        assert 0 not in run(connect, caller=caller)
    if listener6:
        listener6.close()


def connect_to(address):
    family = socket.AF_UNIX if isinstance(address, bytes) else socket.AF_INET6 if len(address) == 4 else socket.AF_INET
    with socket.socket(family) as outgoing:
        outgoing.settimeout(5)
        outgoing.connect(address)


def test_loopback_works_within_the_sandbox(caller):
    def talk():
        with (
            socket.create_server(("localhost", 0)) as listener,
            socket.create_connection(listener.getsockname()) as one,
        ):
            other, _ = listener.accept()
            with other:
                one.sendall(b"hello")
                return other.recv(5).decode()

    assert run(talk, caller=caller) == "hello"


def test_only_common_kinds_of_sockets_can_be_made(caller):
    def attack():
        kinds = [(17, socket.SOCK_RAW), (16, socket.SOCK_RAW, 9), (38, socket.SOCK_SEQPACKET), (40, socket.SOCK_STREAM)]
        return [error_of(socket.socket, *kind) for kind in kinds]

    assert run(attack, caller=caller) == [errno.EAFNOSUPPORT] * 4


def test_no_mounts_and_namespaces_can_be_made(caller):
    def attack():
        return [
            error_of_call("unshare", kernel.NEW_USERS),
            error_of_call("unshare", kernel.NEW_MOUNTS),
            error_of_call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
            error_of_call("umount2", b"/usr", kernel.DETACH),
            error_of_call("setns", 0, 0),
            error_of_call("chroot", b"/tmp"),
            error_of_call("syscall", 56, kernel.NEW_USERS | signal.SIGCHLD, 0, 0, 0, 0)
            if kernel.ARCHITECTURE == "x86-64"
            else errno.EPERM,
        ]

    assert run(attack, caller=caller) == [errno.EPERM] * 7


@pytest.mark.skipif(kernel.ARCHITECTURE != "x86-64", reason="the numbers are those of x86-64")
def test_rare_system_calls_are_refused(caller):
    calls = {
        "bpf": 321,
        "perf_event_open": 298,
        "io_uring_setup": 425,
        "userfaultfd": 323,
        "keyctl": 250,
        "add_key": 248,
    }
    calls |= {
        "kexec_load": 246,
        "process_vm_readv": 310,
        "personality": 135,
        "settimeofday": 164,
        "getpid of x32": 0x40000000 + 39,
    }

    def attack():
        return {name: error_of_call("syscall", number, 0, 0, 0, 0, 0) for name, number in calls.items()}

    assert run(attack, caller=caller) == dict.fromkeys(calls, errno.EPERM)


@pytest.mark.skipif(kernel.ARCHITECTURE != "x86-64", reason="only there are two kinds")
def test_a_system_call_of_32_bit_programs_ends_the_process(caller):
    """Their numbers mean other calls, so that the filter would read them wrongly."""

    def attack():
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(b"\xb8\x14\0\0\0\xcd\x80\xc3")  # mov eax, 20 (getpid); int 0x80; ret
        return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()

    assert run(attack, caller=caller) in (f"ended: {-signal.SIGSYS}", f"ended: {-signal.SIGSEGV}")


def test_programs_give_no_rights(caller):
    def attack():
        with open("/proc/self/status") as file:
            fields = dict(line.split(":\t") for line in file.read().splitlines() if ":\t" in line)
        su = subprocess.run(["/usr/bin/su", "-c", "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10)
        mount = subprocess.run(
            ["/usr/bin/mount", "-t", "tmpfs", "x", "/tmp"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10
        )
        capabilities = int(fields["CapEff"], 16) | int(fields["CapPrm"], 16)
        return [fields["NoNewPrivs"], capabilities, os.getuid() != 0, su.returncode != 0, mount.returncode != 0]

    assert run(attack, caller=caller) == ["1", 0, True, True, True]


def test_nothing_is_scheduled_before_others(caller):
    def attack():
        return [
            error_of(os.nice, -5),
            error_of(os.setpriority, os.PRIO_PROCESS, 1, -5),
            error_of(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1)),
            error_of(resource_up),
        ]

    assert 0 not in run(attack, caller=caller)


def resource_up():
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    except ValueError as error:  # how Python reports a hard limit
        raise PermissionError(errno.EPERM, str(error)) from None


def test_the_clock_cannot_be_set(caller):
    assert run(error_of, time.clock_settime, time.CLOCK_REALTIME, 0, caller=caller) == errno.EPERM


def test_a_sandbox_is_killed_first_when_memory_is_short(caller):
    def look():
        with open("/proc/self/oom_score_adj") as file:
            score = file.read().strip()
        return [score, error_of(open, "/proc/self/oom_score_adj", "w") != 0]

    assert run(look, caller=caller) == ["1000", True]


def test_the_environment_keeps_no_secrets(caller):
    def look():
        with open("/proc/self/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        start, end = int(fields[47]), int(fields[48])  # of the memory with the first environment: proc_pid_stat(5)
        return [end > start, ctypes.string_at(start, end - start).strip(b"\0").decode(), sorted(os.environ)]

    os.environ["TOKEN"] = "42"
    try:
        known, first, names = run(look, caller=caller)
    finally:
        del os.environ["TOKEN"]
    assert known and first == ""
    ours = {"PATH", "HOME", "TMPDIR", "USER", "LOGNAME", "CUDA_VISIBLE_DEVICES", "HANDSON_DEVICE"}
    assert set(names) <= {*ours, *KEPT}


def test_programs_still_run(caller):
    def work():
        command = ["sh", "-c", "echo $((6 * 7)); pwd; id -un; uname -n"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.split()

    answer, folder, user, host = run(work, caller=caller)
    assert (answer, user, host) == ("42", "student", "sandbox") and "sandbox-" in folder


@pytest.mark.parametrize("status", [0, 3, 128 + signal.SIGSEGV])
def test_the_process_outside_ends_as_the_first_one_does(status, caller):
    folder = sandbox_runs.open_folder("sandbox-")
    outer = os.fork()
    if outer == 0:
        try:
            sandbox_runs.become(caller)
            sandbox.enter(sandbox.Confinement([], folder))
            if status > 128:
                faulthandler.disable()  # pytest's
                ctypes.string_at(0)
            os._exit(status)
        finally:
            os._exit(99)
    _, seen = os.waitpid(outer, 0)
    shutil.rmtree(folder)
    assert os.waitstatus_to_exitcode(seen) == status
