"""The grader in pods, executed: the rendered controller, and its engines in two pods, grade a submission that is on the controller's claim."""

import copy
import subprocess

import pods
import pytest
import yaml

from grader.course import UNITS
from grader.instructors.gradebook import Gradebook
from grader.instructors.known_answers import solved
from grader.verdict import NOT_FOUND, PASSED
from handson.cluster.kubernetes import jobs
from handson.files import COURSE

pytestmark = pytest.mark.slow
UNIT = "single_gpu"


@pytest.fixture
def made(tmp_path):
    """The rendered pods of the controller and of the engines, with the keys that `apply --grader` makes; the folder `claim` is there."""
    pods.need()
    done = subprocess.run(["kubectl", "kustomize", COURSE / "jobs/kubernetes/overlays/kind/grader"], capture_output=True, text=True, check=True, timeout=60)
    objects = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.stdout)}
    files = {"keys": jobs.connection_files()}
    (tmp_path / "claim").mkdir()
    return pods.of_deployment(objects["Deployment", "controller"], files, "controller"), pods.of_deployment(objects["Deployment", "engines"], files)


def exercise():
    part = next(part for part in UNITS[UNIT] if part.track == "pytorch")
    return part.file, solved(part.file)


@pytest.mark.timeout(600)
def test_engines_in_two_pods_grade_what_is_on_the_claim_of_the_controller(made, tmp_path):
    controller, engines = made
    file, text = exercise()
    path = tmp_path / "claim/submissions/ann" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pods.running(controller + engines, tmp_path / "claim", tmp_path) as started:
        came = 0
        for line in started["controller-0"].stdout:
            came += "registration::finished registering engine" in line
            if came == len(engines) == 2:
                break
        grade = ["-m", "grader", "grade", "submissions", "--out", "graded", "--profile", "default", "--unit", UNIT]
        status, said = pods.execute(started["controller-0"], "python", *grade)
        assert status == 0 and "(2 engines)" in said, said
    with Gradebook(tmp_path / "claim/graded", writing=False) as book:
        [verdicts] = book.results().values()
    assert {verdict.status for verdict in verdicts} == {PASSED, NOT_FOUND} and len(verdicts) > 5
    [key] = {part for part in engines[0].files["keys"]["ipcontroller-engine.json"].split('"') if len(part) == 64}
    logs = "".join(one.communicate()[0] or "" for one in started.values() if not one.stdout.closed)
    assert key not in said + logs and not [path for path in (tmp_path / "claim").rglob("*") if path.is_file() and key.encode() in path.read_bytes()]


@pytest.mark.timeout(300)
def test_the_doctor_says_whether_a_pod_lets_an_engine_confine_students(made, tmp_path):
    _, [engine, refused] = made
    refused.spec = copy.deepcopy(engine.spec)
    refused.spec["securityContext"]["seccompProfile"]["type"] = "RuntimeDefault"  # what a cluster's rules may insist on
    for pod in (engine, refused):
        pod.spec["containers"][0]["args"] = ["python", "-m", "grader", "doctor"]
    with pods.running([engine, refused], tmp_path / "claim", tmp_path) as started:
        (_, well), (_, badly) = map(pods.ended, (started[engine.host], started[refused.host]))
    assert well.splitlines()[-1].startswith("Files, network and processes of a student's code are kept apart")
    sentence = badly.splitlines()[-1]
    assert "can't be confined here: namespaces are refused" in sentence and "seccompProfile: Unconfined" in sentence and "engines.yaml" in sentence
