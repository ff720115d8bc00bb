"""Code in a box, as probes: some of it does what no student's code should."""

import ctypes
import os
import random
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import numpy

from grader.sandbox import protocol


def behave(rank, ranks, *arguments):
    return {"rank": rank, "ranks": ranks, "arguments": arguments, "pid": os.getpid()}


def text(rank, ranks, source, case):
    return source["text"]


def above(rank, ranks):
    """The processes above that of an unconfined rank: init, the box, the server."""
    found = [os.getppid()]
    for _ in range(2):
        found.append(int(Path(f"/proc/{found[-1]}/stat").read_text().rpartition(")")[2].split()[1]))
    return found


def cores(rank, ranks):
    return sorted(os.sched_getaffinity(0))


def loop(rank, ranks):
    while True:
        pass


def burn(rank, ranks, seconds, then):
    """Compute for some seconds of CPU time in each rank, then behave as another function here."""
    while time.process_time() < seconds:
        pass
    return globals()[then](rank, ranks)


def sleep(rank, ranks):
    time.sleep(600)


def wait_alone(rank, ranks):
    """Rank 0 waits for the others in a collective."""
    import torch
    import torch.distributed

    from grader.probes.pytorch_scripts import join

    join(rank, ranks)
    if rank == 0:
        torch.distributed.all_reduce(torch.ones(1))


def leave(rank, ranks):
    if rank == ranks - 1:
        os._exit(7)
    time.sleep(600)


def crash(rank, ranks):
    ctypes.string_at(0)


def end_by_signal(rank, ranks, number):
    os.kill(os.getpid(), number)


def quit(rank, ranks):
    sys.exit(3)


def interrupt(rank, ranks):
    raise KeyboardInterrupt


def grow(rank, ranks):
    taken = []
    while True:
        taken.append(bytearray(1 << 24))


def swarm(rank, ranks, processes, bytes_each, seconds=600):
    """Many small processes, each of which writes to its memory."""
    for _ in range(processes):
        if os.fork() == 0:
            taken = bytearray(b"x") * bytes_each
            time.sleep(600 + len(taken))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.process_time()
    return processes


def flood(rank, ranks):
    print("the beginning")
    for _ in range(50_000):
        print("x" * 100)
    print("the end")


def huge(rank, ranks):
    return numpy.zeros(10 << 20)


def foreign(rank, ranks):
    return {"thing": object()}


def objects(rank, ranks):
    return numpy.array([object()])


def write_everywhere(rank, ranks):
    """Random bytes into all descriptors that a rank has."""
    for name in os.listdir("/proc/self/fd"):
        try:
            os.write(int(name), random.Random(rank).randbytes(1000))
        except OSError:
            pass
    time.sleep(600)


def forge(rank, ranks, answer):
    """Send an `answer` of one's own, past the probe."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.write(int(name), protocol.pack(answer))
            except OSError:
                pass
    time.sleep(600)


def forge_growing(rank, ranks):
    """An answer of almost 4 MiB that is five times as long when it is read and written again."""
    text = b'{"observations": [' + b"1e15," * 800_000 + b"0]}"
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.write(int(name), protocol.LENGTHS.pack(len(text), 0))
                left = memoryview(text)
                while left:
                    left = left[os.write(int(name), left) :]
            except OSError:
                pass
    time.sleep(600)


def kill_peer(rank, ranks):
    Path(f"pid{rank}").write_text(str(os.getpid()))
    while rank == 0 and not (Path("pid1").exists() and Path("pid1").read_text()):
        time.sleep(0.001)
    if rank == 0:
        os.kill(int(Path("pid1").read_text()), signal.SIGKILL)
    time.sleep(600)


def kill_parent(rank, ranks):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def kill_grandparent(rank, ranks):
    fields = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(") ")[2].split()
    os.kill(int(fields[1]), signal.SIGKILL)
    time.sleep(600)


def leave_a_thread(rank, ranks):
    threading.Thread(target=loop, args=(rank, ranks)).start()
    return 1


def start_threads(rank, ranks, number):
    """Threads that all live at the same time, and have memory of their own."""
    together, kept = threading.Barrier(number + 1), []

    def live():
        kept.append(bytearray(1 << 12))
        together.wait()

    for _ in range(number):
        threading.Thread(target=live, daemon=True).start()
    together.wait()
    return len(kept)


def abort_for_a_thread(rank, ranks):
    """As TensorFlow does it."""
    os.write(
        2,
        b"F0000 00:00:00 env.cc:74] Check failed: ret == 0 (11 vs. 0)Thread tf_Compute creation via pthread_create()"
        b" failed.\n",
    )
    os.abort()


def leave_a_daemon(rank, ranks):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writing, str(os.getpid()).encode())
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        os._exit(0)
    return int(os.read(reading, 100))


def burn_then_meet(rank, ranks, seconds):
    """The last rank computes for some seconds while the others wait for it in a collective."""
    import torch

    from grader.probes.pytorch_scripts import join

    join(rank, ranks)
    if rank == ranks - 1:
        burn(rank, ranks, seconds, "behave")
    numbers = torch.full((1 << 18,), float(rank))
    torch.distributed.all_reduce(numbers)
    return float(numbers[-1])


def loaded(rank, ranks):
    return sorted(sys.modules)


def asks(rank, ranks, source, case):
    """Asks for what its case does not have."""
    return {"milliseconds": case["milliseconds"]}


def write_and_send(rank, ranks, address, size):
    """Leave a file in each folder that a rank may write to; then rank 1 sends `size` bytes to rank 0. Returns the files
    of ranks that this one sees."""
    folders = (".", "/tmp", "/dev/shm")
    for folder in folders:
        Path(folder, f"of rank {rank}").touch()
    if rank == 0:
        with socket.create_server((address, 29400)) as listening, listening.accept()[0] as connection:
            while size:
                size -= len(connection.recv(1 << 16))
            connection.sendall(b"!")
    else:
        with _connected(address, 29400) as connection:
            connection.sendall(bytes(size))
            connection.recv(1)
    return sorted({path.name for folder in folders for path in Path(folder).glob("of rank*")})


def _connected(address, port, tries=200):
    """A connection to a server that may not be there yet."""
    for _ in range(tries):
        try:
            return socket.create_connection((address, port))
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise TimeoutError(f"nobody listens at {address}")
