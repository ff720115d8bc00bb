"""The grader in pods, executed: the rendered controller, and its engines in two pods, grade a submission that is on the
controller's claim."""

import copy
from dataclasses import replace

import pods
import pytest
import yaml
from waiting import run_to_end

from grader.course import UNITS
from grader.exercises import solved
from grader.instructors.gradebook import Gradebook
from grader.verdict import NOT_FOUND, PASSED
from handson.cluster.kubernetes import cluster_jobs
from handson.files import COURSE

pytestmark = pytest.mark.thorough
UNIT = "single_gpu"


@pytest.fixture
def made(tmp_path):
    """The rendered pods of the controller and of the engines, with the keys that `apply --grader` makes; the folder
    `claim` is there."""
    pods.need()
    done = run_to_end(["kubectl", "kustomize", COURSE / "jobs/kubernetes/overlays/kind/grader"], check=True)
    objects = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.stdout)}
    files = {"keys": cluster_jobs.connection_files()}
    (tmp_path / "claim").mkdir()
    return pods.of_deployment(objects["Deployment", "controller"], files, "controller"), pods.of_deployment(
        objects["Deployment", "engines"], files
    )


def hand_in(claim):
    part = next(part for part in UNITS[UNIT] if part.track == "pytorch")
    path = claim / "submissions/ann" / part.file
    path.parent.mkdir(parents=True)
    path.write_text(solved(part.file))


def grade(controller, engines):
    """(status, what was said) of grading in the controller's pod, once as many engines are connected."""
    for line in controller.stdout:
        engines -= "registration::finished registering engine" in line
        if not engines:
            break
    return pods.execute(
        controller, *"python -m grader grade submissions --out graded --profile default --unit".split(), UNIT
    )


@pytest.mark.timeout(1000)
def test_engines_in_two_pods_grade_what_is_on_the_claim_of_the_controller(made, tmp_path):
    controller, engines = made
    hand_in(tmp_path / "claim")
    with pods.running(controller + engines, tmp_path / "claim", tmp_path) as started:
        status, said = grade(started["controller"], len(engines))
        assert status == 0 and "(2 engines)" in said, said
    with Gradebook(tmp_path / "claim/graded", writing=False) as book:
        [verdicts] = book.results().values()
    assert {verdict.status for verdict in verdicts} == {PASSED, NOT_FOUND} and len(verdicts) > 5, verdicts
    [key] = {part for part in engines[0].files["keys"]["ipcontroller-engine.json"].split('"') if len(part) == 64}
    logs = "".join(one.communicate()[0] or "" for one in started.values() if not one.stdout.closed)
    assert key not in said + logs
    assert not [
        path for path in (tmp_path / "claim").rglob("*") if path.is_file() and key.encode() in path.read_bytes()
    ]


def test_where_a_pod_cannot_confine_students_the_doctor_says_so_and_nothing_is_graded(made, tmp_path):
    controller, [allowed, refused] = made
    refused.spec = copy.deepcopy(allowed.spec)
    refused.spec["securityContext"]["seccompProfile"]["type"] = "RuntimeDefault"  # what a cluster's rules may insist on
    engine = replace(refused, host="engines-2", spec=copy.deepcopy(refused.spec))
    for pod in (allowed, refused):
        pod.spec["containers"][0]["args"] = ["python", "-m", "grader", "doctor"]
    hand_in(tmp_path / "claim")
    with pods.running([*controller, allowed, refused, engine], tmp_path / "claim", tmp_path) as started:
        (_, well), (_, badly) = map(pods.ended, (started[allowed.host], started[refused.host]))
        status, said = grade(started["controller"], 1)
    assert well.splitlines()[-1].startswith("Files, network and processes of a student's code are isolated")
    sentence = badly.splitlines()[-1]
    assert "cannot be confined here: namespaces are refused" in sentence
    assert "seccompProfile: Unconfined" in sentence
    assert "engines.yaml" in sentence
    assert (
        status == 1
        and (
            "the engines of profile default can't be used: on engines-2, a student's code cannot be confined"
            " here: namespaces are refused"
        )
        in said
    ), said
