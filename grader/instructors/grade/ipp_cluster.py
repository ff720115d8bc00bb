"""The engines of a cluster that is started here, or of a running one. They are trusted, because students' code runs in
other processes."""

import logging
import os
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import ipyparallel
import psutil
import zmq
from IPython.core.profiledir import ProfileDirError
from traitlets.config import Config
from zmq.utils.monitor import recv_monitor_message

from grader.instructors.grade import work
from grader.probes import FOR_SCRIPTS
from grader.sandbox import forkserver, missing
from grader.sandbox.client import WORKPLACE
from grader.temporary import remove_orphans, temporary_folder
from handson import linux
from handson.cluster import nodes
from handson.cluster.engine_jobs import ClusterError

FOLDER = "handson-cluster-"
STARTING = 300  # seconds that a cluster may take to start, on a busy machine
ANSWERING = 60  # seconds for another's cluster to answer
APPEARING = 5  # seconds for its files to appear: `ipcluster start --daemonize` returns before they are complete
HEARTBEAT = 500  # milliseconds; the default of 3,000 makes a start take 6 seconds
MISSED = 60  # heartbeats that a busy engine may miss before it counts as dead; its end is detected immediately
LOOK = 1.0  # seconds between checks of the engines and the controller
ALONE = 8.0  # seconds without any engine of another's cluster, after which the grader ends
# seconds between requests to the controller; seconds without an answer after which it counts as dead
ASK, SILENCE = 2.0, 30.0


class ControllerLost(Exception):
    """The cluster's controller has ended, or does not answer, so no more results will arrive."""


class EnginesLost(Exception):
    """The cluster has no engine, and got no new one in time."""


@contextmanager
def started(engines, libraries=(FOR_SCRIPTS,)):
    """Context manager with the Engines of a new cluster of `engines` engines on this machine. It ends with this
    process, for any reason.

    libraries: tuples of modules; each tuple is loaded once, while the engines start, and all engines share it.
    """
    # otherwise asyncio logs Ctrl-C during the start as a task's error
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    for prefix in (FOLDER, WORKPLACE):
        remove_orphans(prefix)
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(temporary_folder(FOLDER))
        except OSError as error:
            raise ClusterError(
                f"{tempfile.gettempdir()} can't be used ({error.strerror}): make room, or name another folder in TMPDIR"
            ) from error
        cores = os.sched_getaffinity(0)
        for core in cores if len(cores) == engines else ():  # with fewer engines, the kernel may choose the cores
            Path(folder, f"{work.CORE}{core}").touch()
        yield stack.enter_context(_started(folder, engines, libraries))


@contextmanager
def _started(folder, engines, libraries):
    """Run `started` with the cluster's files in `folder`. Only this user may read it, because its files give control of
    the engines."""
    tied = [sys.executable, "-m", "handson.cluster.die_with_parent", str(os.getpid()), folder]
    config = Config()
    config.ControllerLauncher.controller_cmd = [*tied, "ipyparallel.controller"]
    config.EngineLauncher.engine_cmd = [*tied, "ipyparallel.engine", f"--timeout={STARTING}"]
    config.EngineLauncher.environment = {work.SHARED: folder}
    cluster = ipyparallel.Cluster(
        profile_dir=folder,
        cluster_id="",
        config=config,
        controller_args=[
            f"--HeartMonitor.period={HEARTBEAT}",
            f"--HeartMonitor.max_heartmonitor_misses={MISSED}",
            "--IPController.db_class=NoDB",
        ],
        delay=0,
        log_level=logging.CRITICAL,
        shutdown_atexit=False,
    )
    try:
        with ExitStack() as stack:
            for of_some_files in libraries:
                stack.enter_context(forkserver.started(folder, of_some_files))
            try:
                cluster.start_controller_sync()
                client = cluster.connect_client_sync(timeout=STARTING)
                cluster.start_engines_sync(engines)
                there = Engines(client, engines, cluster)
                stack.callback(there.close)
                _wait_for_one(there)
            except Exception as error:  # ipyparallel's errors have no common base class
                why = str(error) or "no answer: other programs may use this whole machine"
                raise ClusterError(
                    f"the cluster of {engines} engines did not start within {STARTING} seconds ({why}): run the same"
                    " command again"
                ) from error
            yield there
    finally:
        _kill()
        try:
            cluster.stop_cluster_sync()
        except Exception:
            pass  # remaining processes end with this one: see die_with_parent.py


def _kill():
    """Kill the controller, the engines and their children, which would otherwise take a second to end."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if "handson.cluster.die_with_parent" in child.cmdline():
                for process in [*child.children(recursive=True), child]:
                    process.kill()


def _wait_for_one(engines):
    """Wait until the first engine has started. It can work while the others start."""
    while not engines.ids():
        engines.look()
        time.sleep(0.05)


@contextmanager
def running(profile=None, cluster_file=None, trusted=False):
    """Context manager with the Engines of a cluster that ipyparallel's own commands have started. The cluster keeps
    running afterwards.

    trusted: whether students' code is trusted, so that the engines' hosts need no sandbox.
    """
    where = name(profile, cluster_file)
    try:
        client = _connected(profile, cluster_file)
        client.wait_for_engines(1, timeout=ANSWERING, interactive=False)
    except Exception as error:
        first, *_ = str(error).splitlines() or [type(error).__name__]
        raise ClusterError(
            f"no engine of {where} answers ({first}): start the cluster with `ipcluster start`"
        ) from error
    with closing(Engines(client)) as there:
        if not trusted:
            _all_confined(client, where)
        yield there


def _connected(profile, cluster_file):
    """Return a client of a running cluster."""
    end = time.monotonic() + APPEARING
    while True:
        try:
            if cluster_file:
                return ipyparallel.Cluster.from_file(str(cluster_file)).connect_client_sync(timeout=ANSWERING)
            return ipyparallel.Client(profile=profile, timeout=ANSWERING)
        except (OSError, ValueError, ProfileDirError):  # missing or incomplete
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def _all_confined(client, where):
    """Check that the engines' hosts can confine a student's code; this host runs none, so it is not checked. Raises
    ClusterError. An engine that does not answer fails with its first piece."""
    asked = [client[engine].apply_async(_host_and_missing) for engine in client.ids]
    end = time.monotonic() + ANSWERING
    for result in asked:
        result.wait(max(0.0, end - time.monotonic()))
        host, why = result.get() if result.ready() and result.successful() else ("", "")
        if why:
            raise ClusterError(
                f"the engines of {where} can't be used: on {host}, {why[0].lower()}{why[1:]} run `python -m grader doctor` there"
            )


def _host_and_missing():
    return nodes.current_node(), missing()


def name(profile, cluster_file):
    """Return the name of a running cluster for messages."""
    return cluster_file or f"profile {profile}"


class Engines:
    """The engines, each with a number.

    wanted: the intended number of engines; cluster: the cluster started here, whose engines are replaced when they end,
    or None for another's cluster.
    """

    def __init__(self, client, wanted=0, cluster=None):
        self.client, self.wanted, self.cluster = client, wanted, cluster
        self.view = client.load_balanced_view()
        self.looked = self.there = time.monotonic()  # there: when an engine was last seen
        self.waited = 0.0  # seconds in which there was an engine, but the first task had not ended
        self.cut = None  # since when the queue that sends work to the engines has been disconnected
        self.silence, self.over = 0.0, threading.Event()
        # ipyparallel's task scheduler asks for the engines once, and then listens. It misses an engine that registers
        # in between, and the work would wait forever. So the first task of a new cluster has a time limit.
        self.first = self.view.apply_async(os.getpid) if cluster else None
        threading.Thread(target=self._listen, daemon=True).start()

    def ids(self):
        """Return the numbers of the running engines."""
        return list(self.client.ids)

    def submit(self, function, *arguments):
        """Make any engine call a function. Return ipyparallel's AsyncResult."""
        return self.view.apply_async(function, *arguments)

    def look(self):
        """Replace engines that have ended, if they were started here. Raises ControllerLost or EnginesLost."""
        now = time.monotonic()
        if now - self.looked < LOOK:
            return
        # min: leaves out time in which this process was stopped
        self.silence, self.looked = self.silence + min(now - self.looked, 2 * LOOK), now
        controller = self.cluster and getattr(self.cluster.controller, "process", None)
        if max(self.silence, now - (self.cut or now)) > SILENCE or (controller and not linux.runs(controller.pid)):
            raise ControllerLost
        if self.ids():
            self.there = now
            if self.first and self.first.ready():
                self.first = None
            elif self.first:
                self.waited += LOOK
                if self.waited > SILENCE:
                    raise ControllerLost
        elif now - self.there > (STARTING if self.cluster else ALONE):
            raise EnginesLost
        if self.cluster:
            self._replace_lost()

    def _replace_lost(self):
        """Start an engine for each one that has ended or is stopped; a stopped engine is killed."""
        alive = 0
        for child in psutil.Process().children():
            with suppress(psutil.Error):
                if "ipyparallel.engine" in child.cmdline():
                    if child.status() == psutil.STATUS_STOPPED:
                        child.kill()
                    alive += child.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
        if alive < self.wanted:
            self.cluster.start_engines_sync(self.wanted - alive)

    def _listen(self):
        """Request an answer from the controller repeatedly, and record when it answers, and whether its queue, which is
        a separate process, is connected. Runs in a thread, because a request to a dead controller never returns."""
        monitor = self.client._task_socket.get_monitor_socket(zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED)
        while not self.over.wait(ASK):
            while monitor.poll(0):
                connected = recv_monitor_message(monitor)["event"] == zmq.EVENT_CONNECTED
                self.cut = None if connected else self.cut or time.monotonic()
            with suppress(Exception):  # an error is also an answer
                self.client.queue_status()
            self.silence = 0.0
        monitor.close()

    def close(self):
        """Disconnect. Otherwise the client's hundred sockets would stay open until garbage collection."""
        self.over.set()
        self.client.close()
