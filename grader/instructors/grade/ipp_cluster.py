"""The engines of a cluster that is started here, or of one that is running already. They are trusted: no student's code
runs in them."""

import functools
import logging
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress

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
from handson.errors import OneSentence

FOLDER = "handson-cluster-"
STARTING = 300  # seconds that a cluster may take to start, on a busy machine
ANSWERING = 60  # seconds for a cluster that is not ours to answer
APPEARING = 5  # seconds for its files: `ipcluster start --daemonize` returns before they are all there
ASKING = 10  # seconds for its engines to say how fast they are; who is silent is left out
HEARTBEAT = 500  # milliseconds; the default of 3,000 makes a start take 6 seconds
MISSED = 60  # heartbeats that a busy engine may miss before it counts as dead; the end of an engine is noticed at once
LOOK = 1.0  # seconds between looks at the processes of engines and controller
ALONE = 8.0  # seconds without any engine, on a cluster that is not ours, after which the grader ends
# seconds between questions to a controller that is not ours; seconds without an answer that make it dead
ASK, SILENCE = 2.0, 30.0


class ClusterError(OneSentence, RuntimeError):
    """A sentence on why there is no cluster to grade on."""

    status = 1


@contextmanager
def started(engines, libraries=(FOR_SCRIPTS,)):
    """In a `with`: the Engines of a cluster of `engines` engines on this machine. It ends with this process, however
    this process ends.

    libraries: tuples of modules; those of each are loaded once, while the engines start, and all engines share them.
    """
    # else asyncio logs Ctrl-C during the start as a task's error
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
        yield stack.enter_context(_started(folder, engines, libraries))


@contextmanager
def _started(folder, engines, libraries):
    """`started`, with the cluster's files in `folder`. Only this user may open it, because its files allow to command
    the engines."""
    tied = [sys.executable, "-m", "grader.instructors.grade.die_with_parent", str(os.getpid()), folder]
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
                _wait_for_one(there)
            except Exception as error:  # ipyparallel's errors have no common class
                raise ClusterError(
                    f"the cluster of {engines} engines did not start within {STARTING} seconds: {error}"
                ) from error
            try:
                yield there
            finally:
                client.close()  # else its hundred sockets stay open until they are collected as garbage
    finally:
        _kill()
        try:
            cluster.stop_cluster_sync()
        except Exception:
            pass  # what still runs ends with this process: see tied.py


def _kill():
    """Kill the controller, the engines and the processes that they started. Without this, ending takes them a
    second."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if "grader.instructors.grade.die_with_parent" in child.cmdline():
                for process in [*child.children(recursive=True), child]:
                    process.kill()


def _wait_for_one(engines):
    """Wait until the first engine has started. It can work while the others start."""
    deadline = time.monotonic() + STARTING
    while not engines.ids():
        if time.monotonic() > deadline:
            raise TimeoutError("no engine came")
        engines.replace_lost()
        time.sleep(0.05)


@contextmanager
def running(profile=None, cluster_file=None, trusted=False):
    """In a `with`: the Engines of a cluster that was started by ipyparallel's own means. The cluster keeps running
    afterwards.

    trusted: that students' code is, so that the engines' hosts need not confine it.
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
    there = Engines(client, len(client.ids), controller=controller_here(profile, cluster_file))
    threading.Thread(target=there.listen, daemon=True).start()
    try:
        if not trusted:
            _all_confined(there, where)
        yield there
    finally:
        there.over.set()
        client.close()


def _connected(profile, cluster_file):
    """A client of a running cluster."""
    end = time.monotonic() + APPEARING
    while True:
        try:
            if cluster_file:
                return ipyparallel.Cluster.from_file(str(cluster_file)).connect_client_sync(timeout=ANSWERING)
            return ipyparallel.Client(profile=profile, timeout=ANSWERING)
        except (OSError, ValueError, ProfileDirError):  # not there, or half written
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def _all_confined(engines, where):
    """Ask the engines whether their hosts can confine a student's code; this host, where no student's code runs, need
    not. Raises ClusterError."""
    for host, why in engines.ask(missing, ANSWERING):
        if why:
            raise ClusterError(
                f"the engines of {where} can't be used: on {host}, {why[0].lower()}{why[1:]} `python -m grader doctor`"
                " says more there"
            )


def controller_here(profile, cluster_file):
    """The process of a running cluster's controller if that is on this host, else None."""
    with suppress(Exception):  # the file of a cluster that was started elsewhere may lack it
        found = ipyparallel.Cluster.from_file(
            **({"cluster_file": str(cluster_file)} if cluster_file else {"profile": profile})
        )
        process = psutil.Process(found.controller.pid)
        return process if "controller" in " ".join(process.cmdline()) else None
    return None


def name(profile, cluster_file):
    """The name of a running cluster, for messages."""
    return cluster_file or f"profile {profile}"


class Engines:
    """The engines, each with a number. wanted: how many there should be; cluster: the cluster started here, whose
    engines are replaced when they end, or None for a cluster that was running already; controller: the process of the
    latter's controller, if it is on this host."""

    def __init__(self, client, wanted, cluster=None, controller=None):
        self.client, self.wanted, self.cluster, self.controller = client, wanted, cluster, controller
        self.processes = {}  # engine -> its process, if it was started here
        self.pinned = {}  # engine -> its core
        self.hosts, self.questions = {}, {}  # engine -> its host; engine -> when it was asked for its host
        self.silence, self.asked, self.over = 0.0, time.monotonic(), threading.Event()
        # since when the queue that takes work to the engines has not been connected, on a cluster that is not ours
        self.cut = None
        # don't look at once: a new process shows no command for a moment
        self.news, self.looked = threading.Event(), time.monotonic()
        # the most processes below the controller that were seen, and when they were counted
        self.queues, self.counted = 0, time.monotonic()
        self.alone = STARTING if cluster else ALONE  # seconds for which there may be no engine

    def ids(self):
        """The numbers of the running engines."""
        return list(self.client.ids)

    def host(self, engine):
        """The name of an engine's host, or None while its answer may still come. Engines started here are all on this
        host."""
        if self.cluster:
            return "this host"
        if engine not in self.questions:
            self.questions[engine] = time.monotonic()
            self.client[engine].apply_async(nodes.current_node).add_done_callback(
                functools.partial(self._note_host, engine)
            )
        late = time.monotonic() - self.questions[engine] > ANSWERING
        return self.hosts.get(engine, f"host of engine {engine}" if late else None)

    def _note_host(self, engine, result):
        with suppress(Exception):  # if the engine fails here, its first piece will show it
            self.hosts[engine] = result.get(0)
        self.forget(result)
        self.news.set()

    def ask(self, function, seconds=ASKING):
        """[(host, what `function` returns)] of the engines that answer within some seconds; all of them run it at the
        same time."""
        asked = [self.client[engine].apply_async(_with_host, function) for engine in self.ids()]
        end, found = time.monotonic() + seconds, []
        for result in asked:
            result.wait(max(0.0, end - time.monotonic()))
            with suppress(Exception):  # an engine that fails here shows it with its first piece
                found.append(result.get(0))
            self.forget(result)
        return found

    def cores(self, engines):
        """The cores for the work of some engines: one for each engine, if as many engines were started here as there
        are cores; else (), which means all cores.

        Left to itself, the kernel often puts two engines' work on one core while another core is idle, since it
        consists of short processes.
        """
        there = sorted(os.sched_getaffinity(0))
        if self.cluster is None or self.wanted != len(there):
            return ()
        alive = self.ids()
        for engine in engines:
            if self.pinned.get(engine) not in there:
                taken = Counter(self.pinned[other] for other in alive if other in self.pinned)
                self.pinned[engine] = min(there, key=lambda core: taken[core])
        return tuple({self.pinned[engine] for engine in engines})

    def submit(self, engine, function, *arguments):
        """Have an engine call a function; returns ipyparallel's AsyncResult."""
        if self.cluster and engine not in self.processes:
            self.processes[engine] = None
            self.client[engine].apply_async(os.getpid).add_done_callback(functools.partial(self._note_process, engine))
        result = self.client[engine].apply_async(function, *arguments)
        result.add_done_callback(lambda result: self.news.set())
        return result

    def _note_process(self, engine, result):
        with suppress(Exception):  # it has ended
            self.processes[engine] = psutil.Process(result.get(0))
            self.forget(result)

    def wait(self, seconds):
        """Wait until something that was submitted is done, or some seconds have passed."""
        self.news.wait(seconds)
        self.news.clear()

    def end(self, engine):
        """Kill an engine that does not answer, if it was started here."""
        if process := self.processes.get(engine):
            with suppress(psutil.Error):
                process.kill()

    def forget(self, result):
        """Drop what the client stores of a result; the client itself never drops it."""
        try:
            self.client.purge_local_results(result)
        except (KeyError, RuntimeError):
            pass

    def replace_lost(self):
        """Start an engine for each one that has ended, if they were started here. Kill engines that are stopped, or
        that the controller has given up."""
        if self.cluster is None or time.monotonic() - self.looked < LOOK:
            return
        self.looked, there = time.monotonic(), self.ids()
        for engine, process in list(self.processes.items()):
            with suppress(psutil.Error):
                if process and (engine not in there or process.status() == psutil.STATUS_STOPPED):
                    process.kill()
            if engine not in there:
                del self.processes[engine]
        missing = self.wanted - _engines_alive()
        if missing > 0:
            self.cluster.start_engines_sync(missing)

    def controller_alive(self):
        """Whether the cluster still has a controller that works."""
        if self.cluster is None:
            now = time.monotonic()
            # min: time while this process was stopped is left out
            self.silence, self.asked = self.silence + min(now - self.asked, LOOK), now
            silence = max(self.silence, now - (self.cut or now))
            return silence < SILENCE and (self.controller is None or self._queues_alive(self.controller.pid))
        process = getattr(self.cluster.controller, "process", None)
        return bool(process) and linux.runs(process.pid) and self._queues_alive(process.pid)

    def _queues_alive(self, controller):
        """Whether all processes below the controller still run. Each of them is a queue: without it the engines get or
        return nothing."""
        if time.monotonic() - self.counted < LOOK:
            return True
        self.counted, alive = time.monotonic(), sum(map(linux.runs, linux.children(controller)))
        self.queues = max(self.queues, alive)
        return alive == self.queues

    def listen(self):
        """Ask the controller again and again, and note that it answers, and whether its queue is connected: that is a
        process of its own. Runs in a thread: a question to a dead controller never returns."""
        monitor = self.client._mux_socket.get_monitor_socket(zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED)
        while not self.over.wait(ASK):
            while monitor.poll(0):
                connected = recv_monitor_message(monitor)["event"] == zmq.EVENT_CONNECTED
                self.cut = None if connected else self.cut or time.monotonic()
            with suppress(Exception):  # an error is an answer, too
                self.client.queue_status()
            self.silence = 0.0
        monitor.close()


def _with_host(function):
    return nodes.current_node(), function()


def _engines_alive():
    """The number of this process's children that are running engines."""
    alive = 0
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            alive += "ipyparallel.engine" in child.cmdline() and linux.runs(child.pid)
    return alive
