"""The engines: of a cluster that is started here, or of one that runs already. Engines are trusted; no student's code runs in them."""

import logging
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager

import ipyparallel
from traitlets.config import Config

from handson.errors import OneSentence

STARTING = 60  # seconds for a cluster to be there
HEARTBEAT = 500  # milliseconds; the default of 3,000 makes a start take 6 seconds
MISSED = 60  # heartbeats that a busy engine may miss before it counts as dead; one that ends is noticed at once


class ClusterError(OneSentence, RuntimeError):
    """Why there is no cluster to grade on."""

    status = 1


@contextmanager
def started(engines):
    """A cluster of `engines` engines on this machine, which ends with this process, however that ends: an Engines."""
    folder = tempfile.mkdtemp(prefix="handson-cluster-")  # mode 0700: whoever reads its files commands the engines
    tied = [sys.executable, "-m", "grader.grade.tied", str(os.getpid())]
    config = Config()
    config.ControllerLauncher.controller_cmd = [*tied, "ipyparallel.controller"]
    config.EngineLauncher.engine_cmd = [*tied, "ipyparallel.engine"]
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
        try:
            cluster.start_controller_sync()
            client = cluster.connect_client_sync(timeout=STARTING)
            cluster.start_engines_sync(engines)
            client.wait_for_engines(engines, timeout=STARTING, interactive=False)
        except (TimeoutError, OSError, RuntimeError) as error:
            raise ClusterError(f"the cluster of {engines} engines did not start within {STARTING} seconds: {error}") from error
        yield Engines(client, engines, cluster)
        client.close()
    finally:
        try:
            cluster.stop_cluster_sync()
        except Exception:
            pass  # what is left is tied to this process
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(profile=None, cluster_file=None):
    """The engines of a cluster that was started by ipyparallel's own means; it is left as it is found."""
    where = cluster_file or f"profile {profile}"
    try:
        if cluster_file:
            cluster = ipyparallel.Cluster.from_file(str(cluster_file))
            client = cluster.connect_client_sync(timeout=STARTING)
        else:
            client = ipyparallel.Client(profile=profile, timeout=STARTING)
        client.wait_for_engines(1, timeout=STARTING, interactive=False)
    except (OSError, TimeoutError, RuntimeError) as error:
        raise ClusterError(f"no engine of {where} answers ({error}): start the cluster with `ipcluster start`") from error
    try:
        yield Engines(client, len(client.ids))
    finally:
        client.close()


class Engines:
    """Engines by number. `wanted`: how many there should be; those of a `cluster` of ours are replaced when they end."""

    def __init__(self, client, wanted, cluster=None):
        self.client, self.wanted, self.cluster = client, wanted, cluster
        self.starting = 0

    def ids(self):
        """The engines that are there."""
        return list(self.client.ids)

    def submit(self, engine, function, *arguments):
        """Have an engine call a function; returns ipyparallel's AsyncResult."""
        return self.client[engine].apply_async(function, *arguments)

    def forget(self, result):
        """Drop what the client keeps of a result, for it never would."""
        try:
            self.client.purge_local_results(result)
        except (KeyError, RuntimeError):
            pass

    def replace_lost(self):
        """Start as many engines as have ended, if they are ours. Returns how many."""
        there = len(self.ids())
        if there >= self.wanted:
            self.starting = 0
        missing = self.wanted - there - self.starting
        if self.cluster is None or missing <= 0:
            return 0
        self.cluster.start_engines_sync(missing)
        self.starting += missing
        return missing

    def controller_alive(self):
        """Whether the cluster still has a controller, as far as can be told."""
        if self.cluster is None:
            return True
        process = getattr(self.cluster.controller, "process", None)
        return bool(process and process.is_running() and process.status() != "zombie")
