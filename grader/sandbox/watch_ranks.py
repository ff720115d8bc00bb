"""The watcher: it starts init and the ranks, reads their messages, and kills all of them when they are done, at a
limit, or in a deadlock."""

import contextlib
import json
import os
import resource
import select
import selectors
import signal
import socket
import sys
import time

from grader.sandbox import protocol, rank_stacks, rank_waits
from grader.sandbox.confine import enter, prepare
from grader.sandbox.limits import BUSY, Confinement, Limits
from grader.sandbox.rank import be_rank, no_thread
from grader.verdict import DEADLOCK, ERROR, FAILED, GRADER_FAULT, KILLED, OUT_OF_MEMORY, TIMEOUT
from handson import linux
from handson.errors import OneSentence

ABORTED = ": torch does that where a rank receives a longer message than it expects"
# signals with which libraries and the C library end a process that cannot start a thread
NO_THREAD_STATUSES = (-signal.SIGABRT, 127)
WAKING = 0.05  # share of a core that threads use if they only wake up regularly to check for messages, as gloo's do
# seconds that ranks get to finish after another one has failed, or to report where they hang; CPU seconds on a busy
# machine
GRACE = 0.5
TICK = 0.1
LONGEST_LOOK = 1.0  # seconds between two checks that count at most: this process may have been stopped
ENDING = 60  # seconds for killed processes to end
OUT_OF_TIME = "your code was still running at the time limit: does a loop never end?"
WAITS = "your code waits for something that never happens"  # reports a wait outside collectives
FLOOD = 50 << 20  # bytes that ranks may print
LONGEST_ANSWER = 4 << 20  # bytes that a rank may send
STATUSES = [FAILED, ERROR, OUT_OF_MEMORY, DEADLOCK, GRADER_FAULT]  # the statuses that a rank may report itself


class _Rank:
    """The watcher's data on a rank, and its ends of the rank's pipes."""

    def __init__(self, number):
        self.number = number
        self.channel, self.theirs = socket.socketpair()
        # the kernel passes the sender's PID in the watcher's namespace
        self.channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.output, self.output_end = os.pipe()
        self.stack, self.stack_end = os.pipe()
        self.waits = rank_waits.shared_memory()
        self.pid = self.status = self.answer = None
        self.received, self.printed, self.frames = bytearray(), Kept(), bytearray()

    def close_theirs(self):
        self.theirs.close()
        os.close(self.output_end)
        os.close(self.stack_end)

    @property
    def done(self):
        return self.answer is not None or self.status is not None

    @property
    def failed(self):
        return self.done and (self.answer is None or "observations" not in self.answer)


class Kept:
    """The beginning and the end of a rank's output."""

    HALF = 4000  # bytes

    def __init__(self):
        self.head, self.tail, self.total = b"", b"", 0

    def add(self, data):
        self.total += len(data)
        room = self.HALF - len(self.head)
        self.head += data[:room]
        self.tail = (self.tail + data[room:])[-self.HALF :] if len(data) > room else self.tail

    def text(self):
        cut = self.total - len(self.head) - len(self.tail)
        middle = f"\n[... {cut} bytes cut ...]\n".encode() if cut > 0 else b""
        return (self.head + middle + self.tail).decode(errors="replace")


def run(work):
    """Run the ranks of `work`, and return how they ended: the dictionary for an Outcome of grader.sandbox.client."""
    if work["cores"]:
        with contextlib.suppress(OSError):  # these cores may no longer be allowed
            os.sched_setaffinity(0, work["cores"])
    if work["readable"] is not None:
        prepare()
    linux.end_with_parent()
    linux.adopt_orphans()
    start, limits = time.monotonic(), Limits(**work["limits"])
    ranks = [_Rank(number) for number in range(work["ranks"])]
    control, init_end = socket.socketpair()
    init = os.fork()
    if init == 0:
        control.close()
        _be_init(work, limits, ranks, init_end)
    init_end.close()
    for rank in ranks:
        rank.close_theirs()
    try:
        why, seen_cpu, waited, memory = _watch(ranks, control, limits)
    finally:
        _end_ranks(init)
        end_children()
    for rank in ranks:
        # the last messages may still be in the pipes
        while _read("output", rank, rank.output) or _read("stack", rank, rank.stack):
            pass
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = max(seen_cpu, used.ru_utime + used.ru_stime)
    if why is None and any(rank.status == -signal.SIGKILL and rank.answer is None for rank in ranks):
        why = _why_killed(cpu, memory, limits)
    return {
        "ranks": [_outcome(rank, why, limits) for rank in ranks],
        "cpu_seconds": cpu,
        "seconds": time.monotonic() - start,
        "waited_seconds": waited,
    }


def _why_killed(cpu, memory, limits):
    """Return a status for a rank that got SIGKILL, not from the watcher. A student's code can send it only to the
    number of a thread. Raises OneSentence if the code of these ranks used too little to have caused it."""
    if cpu > 0.9 * limits.cpu_seconds:
        return TIMEOUT
    if memory > limits.memory_bytes:  # a single process cannot have that much
        return OUT_OF_MEMORY
    raise OneSentence(
        "the system killed a process of these ranks, which used little memory themselves: is the machine short of"
        " memory?"
    )


def _be_init(work, limits, ranks, control):
    """Run the parent of the ranks, in a sandbox if `work` requests one. Never returns."""
    try:
        os.chdir(work["workplace"])
        if work["readable"] is not None:
            own_network = not work.get("group")
            enter(Confinement(work["readable"], work["workplace"], limits, own_network=own_network))
        else:
            linux.end_with_parent()
        pids = {}
        for rank in ranks:
            pid = os.fork()
            if pid == 0:
                control.close()
                be_rank(rank.number, work, limits, rank.theirs, rank.output_end, rank.stack_end, rank.waits)
            pids[pid] = rank.number
        for rank in ranks:
            rank.close_theirs()
        with contextlib.suppress(ChildProcessError):  # all have ended
            while True:
                pid, status = os.wait()  # also collects processes that student code has started
                if pid in pids:
                    control.sendall(json.dumps([pids.pop(pid), os.waitstatus_to_exitcode(status)]).encode() + b"\n")
    except BaseException as error:
        control.sendall(json.dumps([-1, f"{type(error).__name__}: {error}"]).encode() + b"\n")
    finally:
        os._exit(1)


def _watch(ranks, control, limits):
    """Wait until all ranks are done, or none can continue. Return why they were stopped (a status, or None), the CPU
    seconds, the seconds in which no process computed, and the peak bytes of memory.

    On a busy machine, ranks are ready to compute but get no core. These `starved` seconds count for no limit. Threads
    that only wake up regularly also appear ready there, so whether ranks progress is decided by their CPU time.
    """
    start, told = time.monotonic(), bytearray()
    deadline, why, cpu, look = None, None, 0.0, start + 0.5
    looks, looked, waited, starved, memory, printed = 0, start, 0.0, 0.0, 0, 0
    # when a process last computed, and `waited` and `cpu` at that time
    moved, moved_waited, moved_cpu = start, 0.0, 0.0
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ, ("control", None))
    for rank in ranks:
        selector.register(rank.channel, selectors.EVENT_READ, ("channel", rank))
        selector.register(rank.output, selectors.EVENT_READ, ("output", rank))
        selector.register(rank.stack, selectors.EVENT_READ, ("stack", rank))
    while True:
        for key, _ in selector.select(TICK):
            what, rank = key.data
            data = _read(what, rank, key.fileobj)
            if not data:
                selector.unregister(key.fileobj)
                if what == "control":  # init was killed, and the ranks with it
                    for other in ranks:
                        other.status = -signal.SIGKILL if other.status is None else other.status
            if what == "control":
                told += data
                while b"\n" in told:
                    line, told = told.split(b"\n", 1)
                    number, status = json.loads(line)
                    if number < 0:
                        raise RuntimeError(f"the ranks could not be started: {status}")
                    ranks[number].status = status
        now = time.monotonic()
        if all(rank.done for rank in ranks) and not any(
            rank.status is not None and rank.answer is None and _readable(rank) for rank in ranks
        ):
            break
        if deadline is None and any(rank.failed for rank in ranks):
            deadline, latest, spent = now + GRACE, now + BUSY * GRACE, _activity()[0]
        if now >= look and deadline is None:
            look, looks = now + 0.25, looks + 1
            newer, running, ready = _activity()
            output = sum(rank.printed.total for rank in ranks)
            idle = max(0.0, min(now - looked, LONGEST_LOOK) - max(0.0, newer - cpu))
            waited += 0.0 if running else idle
            if newer > cpu + 0.02 or newer > moved_cpu + 0.02 + WAKING * (now - moved) or output > printed:
                moved, moved_waited, moved_cpu = now, waited, newer
            starved = min(starved + (idle if ready else 0.0), (BUSY - 1) * limits.wall_seconds)
            memory = max(memory, _memory(limits.memory_bytes, exactly=looks % 4 == 0))
            looked, printed, cpu = now, output, max(cpu, newer)
            if memory > limits.memory_together * limits.memory_bytes:
                why = OUT_OF_MEMORY
            elif (
                cpu > 0.9 * limits.cpu_seconds
                or now - start - starved > limits.wall_seconds
                or waited > limits.waiting_seconds
                or printed > FLOOD
            ):
                why = TIMEOUT
            elif waited - moved_waited > limits.still_seconds:
                why = DEADLOCK
            if why:
                deadline = latest = now
                if why != OUT_OF_MEMORY:
                    deadline, latest, spent = now + GRACE, now + BUSY * GRACE, newer
                for rank in ranks:
                    if rank.pid and not rank.done:
                        _kill(rank.pid, signal.SIGUSR1)  # faulthandler writes its stack
        if deadline and now >= deadline:
            newer, _, ready = _activity() if now < latest else (0.0, False, False)
            if not ready or newer > spent + GRACE:
                break
    return why, cpu, waited, memory


def _read(what, rank, file):
    """Read a message of a rank or of init, and keep it. Return its bytes, or b"" at the end of the stream."""
    try:
        if what == "control":
            return file.recv(1 << 16)
        if what in ("output", "stack"):
            data = os.read(file, 1 << 16)
            if what == "output":
                rank.printed.add(data)
            elif len(rank.frames) < 1 << 20:
                rank.frames += data
            return data
        data, ancillary, _, _ = file.recvmsg(1 << 20, socket.CMSG_SPACE(12))
        if rank.pid is None and data:
            credentials = next(value for _, kind, value in ancillary if kind == socket.SCM_CREDENTIALS)
            rank.pid = int.from_bytes(credentials[:4], sys.byteorder)
            # before it runs the student's code, the rank sends the first byte, which carries the credentials
            if data[:1] != b"!":
                raise RuntimeError(f"a rank could not be prepared: {data[1:].decode(errors='replace')}")
            rank.received += data[1:]
        elif rank.answer is None:
            rank.received += data
        if rank.answer is None and protocol.whole(rank.received, LONGEST_ANSWER):
            answer = protocol.unpack(bytes(rank.received))
            if not isinstance(answer, dict) or not {"observations", "status"} & answer.keys():
                raise protocol.BadMessage("it is of another kind")
            # raises if it is too long in this process's form
            protocol.whole(protocol.pack(answer), LONGEST_ANSWER)
            rank.answer = answer
        return data
    except (protocol.BadMessage, ConnectionError, StopIteration) as error:
        rank.answer = rank.answer or {"status": ERROR, "message": f"what came back from it can't be used: {error}"}
        return b""


def _readable(rank):
    """Return whether a rank that has ended has sent something that was not read yet."""
    with selectors.DefaultSelector() as selector:
        selector.register(rank.channel, selectors.EVENT_READ)
        if not selector.select(0):
            return False
        return bool(rank.channel.recv(1, socket.MSG_PEEK))


def _activity():
    """Return the CPU seconds of all processes below this one; whether one of them is active, on a core or a disk;
    whether one computes, or would if it had a core."""
    ticks, states = 0, set()
    for process in _below(os.getpid()):
        ticks += sum(map(int, (linux.stat(process) or [])[11:15]))  # utime, stime, cutime, cstime
        states |= {(linux.stat(thread) or [b""])[0] for thread in linux.threads(process)}
    return ticks / linux.TICKS, not states.isdisjoint({b"R", b"D"}), b"R" in states


def _memory(little, exactly):
    """Return the bytes of memory of all processes below this one.

    They start as copies of this process, and share unchanged memory with it. So only their additional memory counts,
    unless that is more than `little`, or `exactly` is set: an exact count takes milliseconds per process.
    """
    at_first = linux.own_memory("self")
    own = {process: linux.own_memory(process) for process in _below(os.getpid())}
    grown = {process: max(0, memory - at_first) for process, memory in own.items()}
    if sum(own.values()) < little or not exactly and sum(grown.values()) < little:
        return sum(grown.values())
    shares = {process: linux.share_of_memory(process) for process in own}
    return sum(grown[process] if share is None else share for process, share in shares.items())


def _below(process):
    """Return the numbers of a process's descendants."""
    for child in linux.children(process):
        yield child
        yield from _below(child)


def _kill(process, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def _end_ranks(init):
    """Kill all processes below init; init then ends by itself. Init counts their CPU time, which would be lost if init
    were killed first."""
    ended, deadline = os.pidfd_open(init), time.monotonic() + GRACE
    try:
        while time.monotonic() < deadline:
            for process in _below(init):
                _kill(process, signal.SIGKILL)
            if select.select([ended], [], [], 0.02)[0]:
                break
    finally:
        os.close(ended)


def end_children():
    """Kill all children of this process, and the orphans that it adopts in the meantime."""
    deadline = time.monotonic() + ENDING
    while time.monotonic() < deadline:
        for child in linux.children("self"):
            _kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def _outcome(rank, why, limits):
    """Return how `rank` ended: the fields of client.RankOutcome."""
    outcome = {"status": None, "output": rank.printed.text()}
    answer = rank.answer
    if answer and "observations" in answer:
        return outcome | {"observations": answer["observations"]}
    if answer and isinstance(answer["status"], str) and answer["status"] in STATUSES:
        line = answer.get("line")
        return outcome | {
            "status": answer["status"],
            "message": str(answer.get("message", ""))[:2000],
            "line": line if isinstance(line, int) else None,
        }
    if answer:
        return outcome | {"status": ERROR, "message": "what came back from it can't be used: it is of another kind"}
    waiting, line = rank_stacks.where(rank.frames.decode(errors="replace"))
    waits_for = rank_waits.read(rank.waits)
    if rank.status == -signal.SIGXCPU:
        return outcome | {"status": TIMEOUT, "message": OUT_OF_TIME, "line": line}
    if why == OUT_OF_MEMORY:
        together = limits.memory_together * limits.memory_bytes >> 20
        return outcome | {
            "status": OUT_OF_MEMORY,
            "message": f"all processes together need more memory than the {together} MiB that they may use",
            "line": line,
        }
    if rank.status == -signal.SIGKILL and why == TIMEOUT:
        return outcome | {"status": TIMEOUT, "message": OUT_OF_TIME, "line": line}
    if rank.status is not None:
        how = (
            f"was killed by signal {-rank.status} ({signal.strsignal(-rank.status)})"
            if rank.status < 0
            else f"ended itself with exit status {rank.status}"
        )
        if rank.status in NO_THREAD_STATUSES and (sentence := no_thread(outcome["output"], limits)):
            return outcome | {"status": KILLED, "message": sentence}
        why = ABORTED if rank.status == -signal.SIGABRT else ""
        return outcome | {"status": KILLED, "message": f"the process {how} before your code had finished{why}"}
    if why == DEADLOCK and (waiting or waits_for):
        return outcome | {
            "status": DEADLOCK,
            "message": f"your code waits in {waiting}" if waiting else WAITS,
            "waiting": waiting,
            "waits_for": waits_for,
            "line": line,
        }
    if why == DEADLOCK:
        return outcome | {"status": TIMEOUT, "message": WAITS, "line": line}
    if rank.printed.total > FLOOD // 10:
        return outcome | {
            "status": TIMEOUT,
            "message": f"your code printed {rank.printed.total >> 20} MB and did not end: does a loop never end?",
            "line": line,
        }
    if why == TIMEOUT:
        return outcome | {"status": TIMEOUT, "message": OUT_OF_TIME, "waiting": waiting, "line": line}
    return outcome | {
        "status": KILLED,
        "message": "this rank was stopped, because another rank had failed",
        "waiting": waiting,
        "line": line,
    }
