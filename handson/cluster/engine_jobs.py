"""Start ipyparallel's engines in a job of this site's batch system, with a profile for the site: to grade a class
(``python -m grader cluster start``), and for the ranks of a notebook."""

import json
import logging
import math
import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import ipyparallel
from traitlets.config import Config

from handson.cluster import follow, job_scripts
from handson.cluster import site as sites
from handson.errors import OneSentence
from handson.files import COURSE
from handson.words import counted

# the folder in jobs/ipyparallel, and ipyparallel's class
PBS, SLURM = ("pbs", "PBSEngineSetLauncher"), ("slurm", "SlurmEngineSetLauncher")
LAUNCHERS = {"embedded": PBS, "pbs": PBS, "slurm": SLURM}  # the site's batch system -> launcher
WALLTIME = "02:00:00"
LONGEST = 98  # bytes of a socket's path without its port: Linux allows 107
CONTROLLER = 60  # seconds in which it must start, on a busy machine
SOCKET = "socket"  # the beginning of the names of the controller's sockets
LOOK = 0.2  # seconds between checks of the engines


class ClusterError(OneSentence, RuntimeError):
    """The reason why there is no cluster."""

    status = 1


def start(
    site=None, engines=8, nodes=None, profile="handson", walltime=None, wait=600, say=print, config=None, folder=None
):
    """Write the profile for a site (default: the chosen one), start a controller here and a job with `engines` engines,
    and wait for them. Return (Cluster, Client).

    nodes: the job's number of nodes; by default as few as have enough cores. walltime: the longest time of the job, as
    HH:MM:SS. wait: seconds that the job may wait and start. config: ipyparallel settings in addition to the profile's.
    folder: the profile's folder, instead of the folder with its name. Raises ClusterError, after ending everything that
    was started.
    """
    os.environ.update(follow.environment())  # puts qsub on PATH, here and in the job
    here = sites.read(site) if site else sites.load()
    from IPython.paths import get_ipython_dir

    folder = folder or Path(get_ipython_dir(), f"profile_{profile}")
    _write_profile(folder, here, engines, nodes, walltime)
    if (folder / "security/cluster-.json").exists():
        raise ClusterError(
            f"the profile {profile} has a cluster already: `python -m grader cluster stop` ends it; or give another"
            " --profile"
        )
    cluster = ipyparallel.Cluster(
        profile_dir=str(folder),
        cluster_id="",
        shutdown_atexit=False,
        load_profile=True,
        log_level=logging.ERROR,
        config=config or Config(),
    )
    if here.batch == "embedded":
        if len(bytes(folder / SOCKET)) < LONGEST:
            _connect_by_files(cluster, folder)
        else:  # virtual nodes cannot reach this address
            cluster.controller_ip = "127.0.0.1"
    try:
        cluster.start_controller_sync()
        _name_sockets(folder)
        job = _start_engines(cluster, engines)
        say(f"The engines' job is {job}. Waiting for {counted(engines, 'engine')}, {wait} s at most ...")
        client = _wait(cluster, job, engines, wait, say)
    except BaseException:
        with suppress(subprocess.CalledProcessError):  # qdel fails if the job has ended
            cluster.stop_cluster_sync()
        raise
    say(f"{counted(engines, 'engine')} ready.")
    return cluster, client


def _connect_by_files(cluster, folder):
    """Connect the controller and the engines through sockets in `folder`, because virtual nodes see this folder but
    have their own networks."""
    cluster.controller_ip = str(folder / SOCKET)
    cluster.config.ControllerLauncher.controller_args += ["--IPController.transport=ipc"]


def _name_sockets(folder):
    """Rename sockets: ipyparallel's controller calls its file for port 5 NAME-5, but its engines and clients open
    NAME:5."""
    end = time.monotonic() + CONTROLLER
    for side in ("client", "engine"):
        while (connections := _written(folder / f"security/ipcontroller-{side}.json")) is None:
            if time.monotonic() > end:
                raise ClusterError(
                    f"ipyparallel's controller has not started in {CONTROLLER} s: look at {folder / 'log'}"
                )
            time.sleep(0.05)
        if connections["interface"].startswith("ipc:"):
            for ports in connections.values():
                for port in ports if isinstance(ports, list) else [ports]:
                    if isinstance(port, int) and not (name := folder / f"{SOCKET}:{port}").is_symlink():
                        name.symlink_to(f"{SOCKET}-{port}")


def _written(file):
    """Return the content of a JSON file, or None if it does not exist yet, or is incomplete."""
    with suppress(FileNotFoundError, json.JSONDecodeError):
        return json.loads(file.read_text())


def stop(profile="handson", say=print):
    """End the cluster of a profile: its controller, and its engines' job. Raises ClusterError if there is none."""
    try:
        cluster = ipyparallel.Cluster.from_file(profile=profile, cluster_id="")
    except FileNotFoundError:
        raise ClusterError(
            f"the profile {profile} has no cluster that runs: `python -m grader cluster start` starts one"
        ) from None
    cluster.stop_cluster_sync()
    say(
        f"The controller of profile {profile} has ended, and its engines' job is deleted: batch systems end it in a"
        " moment."
    )


def _write_profile(folder, site, engines, nodes, walltime):
    """Write the profile for a site into `folder`."""
    nodes = nodes or math.ceil(engines / site.ncpus)
    if nodes > site.nodes or engines % nodes or engines > nodes * site.ncpus:
        most = f"{site.nodes} nodes with {site.ncpus} cores"
        raise ClusterError(
            f"{engines} engines don't fit on {most}, as many on each node: ask for another number of engines or nodes"
        )
    source, launcher = COURSE / "jobs/ipyparallel" / LAUNCHERS[site.batch][0], LAUNCHERS[site.batch][1]
    values = {"nodes": nodes, "walltime": walltime or site.walltime or WALLTIME}
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.copy(source / "ipcluster_config.py", folder)
    with open(folder / "ipcluster_config.py", "a") as file:
        file.write(f"\nc.{launcher}.namespace = {values!r}  # of the site {site.name}\n")
    (folder / "engines.sh").write_text(job_scripts.fitted((source / "engines.sh").read_text(), site))


def _start_engines(cluster, engines):
    """Submit the engines, and return the number of their job."""
    try:
        name = cluster.start_engines_sync(engines)
    except (subprocess.CalledProcessError, OSError) as error:
        cluster.engines.clear()  # there is no job to delete
        raise ClusterError(
            f"the engines' job was refused, see above ({error}): correct the site's file in jobs/sites, or name another"
            " --site"
        ) from None
    return cluster.engines[name].job_id


def _wait(cluster, job, engines, wait, say):
    """Return the Client when all engines are connected. Raises ClusterError if their job ends, can never run, or takes
    longer than `wait` seconds."""
    client = cluster.connect_client_sync()
    end, waits, there = time.monotonic() + wait, "", 0
    try:
        while len(client.ids) < engines:
            now = follow.look(job)
            if now.waits and now.waits != waits:
                waits = now.waits
                say(f"It waits in {waits}")
            if len(client.ids) > there:
                there = len(client.ids)
                say(f"{there} of {engines} engines are connected.")
            if now.over:
                raise ClusterError(
                    f"job {job} has ended before its engines connected ({now.problem or 'without an error'}); its"
                    f" output is in {now.output}"
                )
            if "Can Never Run" in now.waits or time.monotonic() > end:
                raise ClusterError(
                    f"{there} of {engines} engines are"
                    f" connected{f', and job {job} waits in {waits}' if waits else ''}: ask for fewer, or give a"
                    " longer --wait"
                )
            time.sleep(LOOK)
    except BaseException:
        client.close()
        raise
    return client
