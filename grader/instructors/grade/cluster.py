"""The engines: of a cluster that is started here, or of one that runs already. Engines are trusted; no student's code runs in them."""

import functools
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress

import ipyparallel
import psutil
from traitlets.config import Config

from grader.box import forkserver
from grader.instructors.grade import work
from grader.probes import FOR_SCRIPTS
from handson.cluster import nodes
from handson.errors import OneSentence

STARTING = 60  # seconds for a cluster to be there
HEARTBEAT = 500  # milliseconds; the default of 3,000 makes a start take 6 seconds
MISSED = 60  # heartbeats that a busy engine may miss before it counts as dead; one that ends is noticed at once
LOOK = 1.0  # seconds between looks at the engines' processes
ASK, SILENCE = 2.0, 30.0  # seconds between questions to a controller that is not ours, and without an answer until it counts as dead


class ClusterError(OneSentence, RuntimeError):
    """Why there is no cluster to grade on."""

    status = 1


@contextmanager
def started(engines, libraries=FOR_SCRIPTS):
    """A cluster of `engines` engines on this machine, which ends with this process, however that ends: an Engines.

    libraries: what the engines share, so that it is loaded once, and while they start.
    """
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # an interrupt while it starts is no error of a task
    folder = tempfile.mkdtemp(prefix="handson-cluster-")  # mode 0700: whoever reads its files commands the engines
    tied = [sys.executable, "-m", "grader.instructors.grade.tied", str(os.getpid())]
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
        with forkserver.started(folder, libraries):
            try:
                cluster.start_controller_sync()
                client = cluster.connect_client_sync(timeout=STARTING)
                cluster.start_engines_sync(engines)
                there = Engines(client, engines, cluster)
                _wait_for_one(there)
            except Exception as error:  # ipyparallel's have no kind in common
                raise ClusterError(f"the cluster of {engines} engines did not start within {STARTING} seconds: {error}") from error
            yield there
            client.close()
    finally:
        _kill()
        try:
            cluster.stop_cluster_sync()
        except Exception:
            pass  # what is left is tied to this process
        shutil.rmtree(folder, ignore_errors=True)


def _kill():
    """End the controller and the engines, which by themselves take a second for it, and what they have started."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if "grader.instructors.grade.tied" in child.cmdline():
                for process in [*child.children(recursive=True), child]:
                    process.kill()


def _wait_for_one(engines):
    """Until the first engine is there; the others come while it works."""
    deadline = time.monotonic() + STARTING
    while not engines.ids():
        if time.monotonic() > deadline:
            raise TimeoutError("no engine came")
        engines.replace_lost()
        time.sleep(0.05)


@contextmanager
def running(profile=None, cluster_file=None):
    """The engines of a cluster that was started by ipyparallel's own means; it is left as it is found."""
    where = name(profile, cluster_file)
    try:
        if cluster_file:
            cluster = ipyparallel.Cluster.from_file(str(cluster_file))
            client = cluster.connect_client_sync(timeout=STARTING)
        else:
            client = ipyparallel.Client(profile=profile, timeout=STARTING)
        client.wait_for_engines(1, timeout=STARTING, interactive=False)
    except Exception as error:
        raise ClusterError(f"no engine of {where} answers ({error}): start the cluster with `ipcluster start`") from error
    there = Engines(client, len(client.ids))
    threading.Thread(target=there.listen, daemon=True).start()
    try:
        yield there
    finally:
        there.over.set()
        client.close()


def name(profile, cluster_file):
    """How people call a cluster that runs already."""
    return cluster_file or f"profile {profile}"


class Engines:
    """Engines by number. `wanted`: how many there should be; those of a `cluster` of ours are replaced when they end."""

    def __init__(self, client, wanted, cluster=None):
        self.client, self.wanted, self.cluster = client, wanted, cluster
        self.processes = {}  # engine -> its process, where it is ours
        self.pinned = {}  # engine -> its core
        self.hosts, self.questions = {}, {}  # engine -> its host; when it was asked for it
        self.silence, self.asked, self.over = 0.0, time.monotonic(), threading.Event()
        self.news, self.looked = threading.Event(), time.monotonic()  # for a moment, a new process shows no command

    def ids(self):
        """The engines that are there."""
        return list(self.client.ids)

    def host(self, engine):
        """The name of an engine's host, or None for as long as it may take to say; those of ours are all on this host."""
        if self.cluster:
            return "this host"
        if engine not in self.questions:
            self.questions[engine] = time.monotonic()
            self.client[engine].apply_async(nodes.current_node).add_done_callback(functools.partial(self._note_host, engine))
        late = time.monotonic() - self.questions[engine] > STARTING
        return self.hosts.get(engine, f"host of engine {engine}" if late else None)

    def _note_host(self, engine, result):
        with suppress(Exception):  # what it can't do will be seen when it has to
            self.hosts[engine] = result.get(0)
        self.forget(result)
        self.news.set()

    def cores(self, engines):
        """The cores for what some engines do together: one for each, if as many are ours as there are cores, else () for all.

        By itself, the kernel often has two engines share a core while another is idle: what they do are short processes that start others.
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
        """Until something that was submitted is done, but not longer than some seconds."""
        self.news.wait(seconds)
        self.news.clear()

    def end(self, engine):
        """Kill an engine that does not answer, if it is ours."""
        if process := self.processes.get(engine):
            with suppress(psutil.Error):
                process.kill()

    def forget(self, result):
        """Drop what the client keeps of a result, for it never would."""
        try:
            self.client.purge_local_results(result)
        except (KeyError, RuntimeError):
            pass

    def replace_lost(self):
        """Start as many engines as have ended, if they are ours. One that is stopped, or that the controller has given up, is ended."""
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
        """Whether the cluster still has a controller."""
        if self.cluster is None:
            now = time.monotonic()
            self.silence, self.asked = self.silence + min(now - self.asked, LOOK), now  # but not while this process was stopped
            return self.silence < SILENCE
        process = getattr(self.cluster.controller, "process", None)
        return bool(process and process.is_running() and process.status() != psutil.STATUS_ZOMBIE)

    def listen(self):
        """Note that the controller answers. For a thread: a question to one that is dead never ends."""
        while not self.over.wait(ASK):
            with suppress(Exception):  # that is an answer, too
                self.client.queue_status()
            self.silence = 0.0


def _engines_alive():
    """How many engine processes this one has."""
    alive = 0
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            alive += "ipyparallel.engine" in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE
    return alive
