"""The caller's side: start a server, let it run ranks, and receive how each rank ended."""

import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from grader.sandbox import protocol
from grader.sandbox.limits import BUSY, Limits, harmless_environment
from grader.temporary import remove_orphans, temporary_folder
from grader.verdict import KILLED

ROOT = Path(__file__).resolve().parent.parent.parent
# Otherwise each thread reserves 64 MiB of the limited address space, and few threads of the libraries would start.
FEW_ARENAS = "glibc.malloc.arena_max=2"
HUGE_PAGES = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": f"glibc.malloc.hugetlb=1:{FEW_ARENAS}"}
WORKPLACE = "handson-check-"
STARTING = 30  # seconds that loading libraries may take on an idle machine
STOPPING = 5  # seconds for a server to end by itself


class SandboxFault(Exception):
    """The watcher itself failed. This is not evidence about the student's code."""


@dataclass
class RankOutcome:
    """How one rank ended. `status` is None if it returned `observations`, or otherwise one of grader.verdict's
    statuses."""

    status: str | None
    observations: object = None
    message: str = ""  # the problem, in a sentence
    line: int | None = None  # the line of the student's file
    waiting: str = ""  # the collective in which it waits
    waits_for: list | None = None  # the message or collective for which it waits, as rank_waits.read returns it
    output: str = ""


@dataclass
class Outcome:
    """How all ranks ended. `cpu_seconds`: the sum over all ranks; `seconds`: wall-clock time; `waited_seconds`:
    wall-clock time without computation. `measured`: a check's measurements of this run, for a Verdict."""

    ranks: list
    cpu_seconds: float = 0.0
    seconds: float = 0.0
    waited_seconds: float = 0.0
    measured: dict | None = None

    @property
    def observations(self):
        return [rank.observations for rank in self.ranks]


def begin(module, end, libraries, before=(), **options):
    """Start a process that serves at the socket `end`, and return the Popen, created with `options`. before: a command
    prefix, for example one that enters namespaces."""
    command = [*before, sys.executable, "-P", "-m", module, str(end.fileno()), *libraries]
    # A process keeps its first environment in memory, where a student's code could read it, so it must not contain
    # secrets.
    environment = {
        **harmless_environment(tempfile.gettempdir()),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        **HUGE_PAGES,
    }
    return subprocess.Popen(
        command, env=environment, pass_fds=[end.fileno()], stdin=subprocess.DEVNULL, start_new_session=True, **options
    )


@dataclass
class Server:
    """A server process. The first `run` starts it; later runs use the same process, which only forks.

    `libraries`: modules that it imports first; `before`: see `begin`; `cores`: the cores on which ranks run, () for
    all.
    """

    libraries: tuple = ()
    before: tuple = field(default=(), kw_only=True)
    cores: tuple = field(default=(), init=False)
    process: object = field(default=None, init=False)
    connection: object = field(default=None, init=False)

    def start(self):
        """Start the server, without waiting until it is ready."""
        if self.process and self.process.poll() is None:
            return
        self.stop()
        remove_orphans(WORKPLACE)
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = begin("grader.sandbox.server", theirs, self.libraries, self.before)
        self.connection = ours

    def run(self, function, arguments=(), ranks=1, limits=None, readable=None, group=None):
        """Run ``function(rank, ranks, *arguments)``, named "module:name", in `ranks` processes, and return an Outcome.

        They start in an empty folder that is removed afterwards. readable: the paths that are visible in their sandbox,
        or None to run them without a sandbox. group: (the number of the first rank, the total number of ranks) if these
        ranks are those of one node; they then have this node's network. Raises SandboxFault.
        """
        with temporary_folder(WORKPLACE) as workplace:
            work = {
                "function": function,
                "arguments": list(arguments),
                "ranks": ranks,
                "limits": vars(limits or Limits()),
                "workplace": workplace,
                "readable": readable and list(map(str, readable)),
                "cores": list(self.cores),
                "group": group and list(group),
            }
            return self._run(work)

    def _run(self, work):
        self.start()
        try:
            self.connection.settimeout(BUSY * (work["limits"]["wall_seconds"] + STARTING))
            self.connection.sendall(protocol.pack(work))
            answer = protocol.receive(self.connection)
        except BaseException as error:
            self.stop()
            if isinstance(error, (OSError, protocol.BadMessage)):
                raise SandboxFault(f"the watcher does not answer: {error}") from error
            raise
        if answer is None:
            self.stop()
            raise SandboxFault("the server of the watcher has ended")
        if answer.get("died"):
            return Outcome(
                [RankOutcome(KILLED, message="the process that watches the ranks was killed")] * work["ranks"]
            )
        if "fault" in answer:
            raise SandboxFault(answer["fault"])
        return Outcome(
            [RankOutcome(**rank) for rank in answer["ranks"]],
            answer["cpu_seconds"],
            answer["seconds"],
            answer["waited_seconds"],
        )

    def stop(self):
        """End the server and all processes that it runs."""
        if self.connection:
            self.connection.close()
        if self.process:
            # needed only while it loads libraries; later it ends because the connection closes
            self.process.terminate()
            try:
                self.process.wait(STOPPING)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process, self.connection = None, None
