"""Clusters of ipyparallel's own launchers: started by mpiexec with ipcluster, and as a job of PBS with `python -m
grader cluster start`."""

import json
import os
import re
import shutil
import subprocess
import sys
import time

import ipyparallel
import psutil
import pytest
import real_pbs
from handing_in import hand_in
from IPython.core.profiledir import ProfileDirError
from test_grade import ROOT, UNIT, results
from waiting import wait_until, whole

from grader import exercises
from grader.course import UNITS
from grader.exercises import solved
from grader.instructors.grade import grading, work
from grader.instructors.grade import ipp_cluster as running_cluster
from grader.instructors.grade.ipp_cluster import ClusterError, ControllerLost, Engines
from grader.verdict import NOT_ATTEMPTED, NOT_FOUND, PASSED
from handson.pbs import directives, resources

LIMIT = 180  # seconds for each command
ENGINES = 2
HEARTBEATS = re.findall(r"--HeartMonitor[^\"]*", (ROOT / "jobs/ipyparallel/pbs/ipcluster_config.py").read_text())
pytestmark = pytest.mark.thorough


@pytest.fixture(params=["mpi", "pbs"])
def cluster(request, tmp_path, loaded):
    """A cluster of ENGINES engines that runs: its profile's name and folder, and the environment in which it is
    found."""
    profile, home = request.param, tmp_path / "pbs"
    folder = tmp_path / f"ipython/profile_{profile}"
    environment = {
        **os.environ,
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "HANDSON_PBS_HOME": str(home),
        "HANDSON_SITE": "local",
    }
    environment |= {work.SHARED: str(loaded)}
    # the job meets what a site's own PBS gives it
    own = f"{real_pbs.install(tmp_path / 'bin')}:" if profile == "pbs" else ""
    environment["PATH"] = f"{own}{os.path.dirname(sys.executable)}:/usr/bin:/bin"

    def ipcluster(*arguments):
        program = ["grader", "cluster"] if profile == "pbs" else ["ipyparallel.cluster"]
        command = [sys.executable, "-m", *program, *arguments, f"--profile={profile}"]
        with_grader = environment | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=tmp_path, env=with_grader, text=True, capture_output=True, timeout=LIMIT)

    if profile == "pbs":
        started = ipcluster("start", "-n", str(ENGINES), "--site", "local")
    else:
        shutil.copytree(ROOT / "jobs/ipyparallel" / profile, folder)
        started = ipcluster("start", "-n", str(ENGINES), "--daemonize")
    assert started.returncode == 0, started.stderr
    try:
        if profile == "mpi":
            wait_for_the_engines(folder / "security/ipcontroller-client.json")
        yield profile, folder, environment
    finally:
        stopped = ipcluster("stop")
        left = wait_for_the_end_of(tmp_path)
    assert stopped.returncode == 0, stopped.stderr
    assert profile == "mpi" or not list(tmp_path.glob("*ipengines*")) + list(tmp_path.glob("pbs_engines")), (
        "nothing is left where it was typed"
    )
    assert not left, "`ipcluster stop` ends controller, engines and job"


def wait_for_the_engines(connection):
    """`ipcluster` may return before its controller is there, and grading begins with the first engine; `grader cluster`
    waits for all."""
    wait_until(lambda: whole(connection, "}"), f"the controller's file {connection}", LIMIT)
    with ipyparallel.Client(str(connection), timeout=LIMIT) as client:
        client.wait_for_engines(ENGINES, timeout=LIMIT, interactive=False)


def wait_for_the_end_of(folder, seconds=60):
    """What still runs, of the processes that were started with `folder` in their environment; it is killed."""
    end = time.monotonic() + seconds
    while (left := [process for process in psutil.process_iter() if is_of(process, folder)]) and time.monotonic() < end:
        time.sleep(0.1)
    names = [process.name() for process in left]
    for process in left:
        process.kill()
    return names


def is_of(process, folder):
    try:
        return str(folder) in process.environ().get("IPYTHONDIR", "") + process.environ().get("HANDSON_PBS_HOME", "")
    except psutil.Error:
        return False


def test_a_class_is_graded_on_engines_that_ipyparallel_started(cluster, tmp_path):
    profile, folder, environment = cluster
    place = next(place for place, part in enumerate(UNITS[UNIT]) if part.track == "pytorch")
    file = UNITS[UNIT][place].file
    hand_in(tmp_path / "handed_in", "ann", UNIT, {place: solved(file)})
    hand_in(tmp_path / "handed_in", "bob", UNIT, {place: exercises.given_out(file).text})
    where = ["--profile", profile] if profile == "pbs" else ["--cluster-file", str(folder / "security/cluster-.json")]
    command = [sys.executable, "-m", "grader", "grade", "handed_in", "--out", "out", "--unit", UNIT, *where]
    environment = environment | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert f"({ENGINES} engines)" in done.stdout
    [log] = folder.glob("log/ipcontroller*.log")
    assert "DB backend: NoDB" in log.read_text() and "beating every 500ms" in log.read_text(), (
        "the profile's options reach the controller"
    )
    found = results(tmp_path / "out")
    assert {status for _, _, status, _, _ in found["ann", UNIT]} == {PASSED, NOT_FOUND}, found["ann", UNIT]
    assert {status for _, _, status, _, _ in found["bob", UNIT]} == {NOT_ATTEMPTED, NOT_FOUND}
    if profile == "pbs":
        check_job_script((folder / "engines_job.sh").read_text(), environment, tmp_path)


def check_job_script(script, environment, tmp_path):
    """What a PBS Professional wants of the script, and that one was really given it."""
    lines = script.splitlines()
    first = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert not [line for line in lines[first:] if line.startswith("#PBS")]
    given = directives.read(script.encode())
    assert given, script
    asked = dict(re.findall(r"^#PBS -l (\w+)=(.*)$", script, re.MULTILINE))
    assert resources.parse_select(asked["select"]) == [
        {"count": 1, "ncpus": ENGINES, "mpiprocs": ENGINES, "ompthreads": 1}
    ]
    assert not [
        line
        for line in lines
        if line.startswith("#PBS") and ("," in line or "+" in line or "-J" in line or " -t " in line)
    ]
    shown = subprocess.run(
        ["qstat", "-f"], cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=LIMIT
    ).stdout
    assert "Job_Name = ipengines" in shown and "job_state = R" in shown


def test_a_cluster_that_cannot_start_is_told_in_a_sentence_and_leaves_nothing(tmp_path):
    environment = {
        **os.environ,
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "HANDSON_PBS_HOME": str(tmp_path / "pbs"),
        "HANDSON_SITE": "local",
    }
    for options, words in (
        (("-n", "9", "--site", "local"), "9 engines don't fit on 2 nodes with 2 cores"),
        # this machine's PBS has not its queue
        (("-n", "2", "--site", "reedbush"), "the engines' job was refused, see above"),
    ):
        command = [sys.executable, "-m", "grader", "cluster", "start", *options]
        done = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, timeout=LIMIT)
        assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not wait_for_the_end_of(tmp_path)


def test_without_a_cluster_the_grader_says_how_to_start_one(tmp_path):
    command = [
        sys.executable,
        "-m",
        "grader",
        "grade",
        "handed_in",
        "--out",
        "out",
        "--unit",
        UNIT,
        "--cluster-file",
        "nowhere.json",
    ]
    hand_in(tmp_path / "handed_in", "ann", UNIT, {0: "x"})
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        timeout=LIMIT,
    )
    assert done.returncode != 0 and "ipcluster start" in done.stderr and "Traceback" not in done.stderr


def test_a_cluster_whose_files_are_not_there_yet_is_waited_for(monkeypatch):
    answers = iter(
        [ProfileDirError("Profile directory not found"), json.JSONDecodeError("Expecting value", "", 0), "a client"]
    )

    def client(**options):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(ipyparallel, "Client", client)
    assert running_cluster._connected("mpi", None) == "a client"


def test_a_cluster_whose_scheduler_has_not_heard_of_the_engines_counts_as_lost(tmp_path, monkeypatch):
    """Otherwise the work would wait forever, because the scheduler assigns it to them."""
    monkeypatch.setattr("grader.instructors.grade.ipp_cluster.LOOK", 0.1)
    monkeypatch.setattr("grader.instructors.grade.ipp_cluster.SILENCE", 3.0)
    cluster = ipyparallel.Cluster(
        n=0, profile_dir=str(tmp_path / "profile"), cluster_id="", controller_args=HEARTBEATS, shutdown_atexit=False
    )
    cluster.start_controller_sync()
    try:
        engines = Engines(cluster.connect_client_sync(timeout=LIMIT), cluster=cluster)
        monkeypatch.setattr(engines, "ids", lambda: [0])  # the client knows of one
        begin = time.monotonic()
        with pytest.raises(ControllerLost):
            while time.monotonic() - begin < 30:
                engines.look()
                time.sleep(0.1)
        engines.close()
    finally:
        cluster.stop_controller_sync()


@pytest.mark.parametrize("victim", ["controller", "queue"])
def test_a_controller_that_is_silent_counts_as_lost(tmp_path, monkeypatch, victim):
    """All of its processes stop, as when its host is cut off; or only the queue ends that takes work to the engines."""
    monkeypatch.setattr("grader.instructors.grade.ipp_cluster.ASK", 0.1)
    monkeypatch.setattr("grader.instructors.grade.ipp_cluster.SILENCE", 3.0)
    monkeypatch.setattr("grader.instructors.grade.ipp_cluster.ALONE", 600.0)  # there are no engines
    cluster = ipyparallel.Cluster(
        n=0, profile_dir=str(tmp_path / "profile"), cluster_id="", controller_args=HEARTBEATS, shutdown_atexit=False
    )
    cluster.start_controller_sync()
    controller = psutil.Process(cluster.controller.pid)
    try:
        client = cluster.connect_client_sync(timeout=LIMIT)
        engines, begin = Engines(client), time.monotonic()
        while time.monotonic() - begin < 4:  # longer than the silence that counts
            engines.look()
            time.sleep(0.1)
        queue, port = [], client._task_socket.last_endpoint.decode().rpartition(":")[2]
        for process in [controller, *controller.children()]:
            if victim == "controller":
                process.suspend()
            elif any(connection.laddr.port == int(port) for connection in process.net_connections()):
                queue.append(process)
        for process in queue[-1:]:
            process.kill()
        begin = time.monotonic()
        with pytest.raises(ControllerLost):
            while time.monotonic() - begin < 30:
                engines.look()
                time.sleep(0.1)
    finally:
        for process in [*controller.children(), controller]:
            process.kill()


@pytest.mark.parametrize("victim", ["controller", "engines"])
def test_a_controller_or_engines_that_die_are_told_in_a_sentence_and_what_is_graded_is_kept(
    tmp_path, monkeypatch, loaded, victim
):
    """The cluster was started by another program, so the grader does not replace it. The engines die as with `qdel`, all
    at the same time."""
    monkeypatch.setenv(work.SHARED, str(loaded))
    monkeypatch.setattr("grader.instructors.grade.ipp_cluster.ASK", 0.2)
    monkeypatch.setattr("grader.instructors.grade.ipp_cluster.SILENCE", 5.0)
    students, handed_in, out, said, killed = 6, tmp_path / "handed_in", tmp_path / "out", [], []
    for number in range(students):
        hand_in(handed_in, f"student{number}", UNIT, {0: solved(UNITS[UNIT][0].file)})

    def grade(cluster, say):
        with ipyparallel.Cluster(
            n=1, profile_dir=str(tmp_path / cluster), cluster_id="", controller_args=HEARTBEATS
        ) as client:
            first = client[:].apply_sync(os.getpid)[0] if victim == "engines" else client.cluster.controller.pid
            grading.grade(
                handed_in,
                out,
                cluster_file=client.cluster.cluster_file,
                units=[UNIT],
                say=lambda line: say(line, first),
            )

    def kill(line, first):
        said.append(line)
        if "pieces graded" in line and not killed:
            killed.append(time.monotonic())
            process = psutil.Process(first)
            # those that carry the results, too: not one more comes
            for process in [*process.children(recursive=True), process]:
                process.kill()

    gone = "has lost a process, or has not answered for 5 seconds; .*`ipcluster start`.* continues"
    words = {"controller": gone, "engines": "answers any more: start engines, .*; it continues"}
    with pytest.raises(ClusterError, match=f"one/security/cluster-.json {words[victim]}"):
        grade("one", kill)
    assert time.monotonic() - killed[0] < 30
    kept = len(results(out))
    assert 0 < kept < students
    grade("another", lambda line, _: said.append(line))
    assert (
        f"{students - kept} of {students} pieces of work to grade." in "".join(said) and len(results(out)) == students
    )
