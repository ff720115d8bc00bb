"""What is graded already is graded again when something has changed that its verdict depends on, and only then."""

import functools

import pytest

from grader.course import UNITS
from grader.instructors.grade import digest
from handson.files import COURSE

SCRIPTS = {unit for unit, parts in UNITS.items() if any(part.file.endswith(".py") for part in parts)}
JOBS = {unit for unit, parts in UNITS.items() if any(part.file.endswith(".sh") for part in parts)}
ALL = set(UNITS)
# they stay the same from test to test
MODULES, CONTENT = functools.cache(digest._modules), functools.cache(digest._content)


@pytest.fixture(scope="module")
def before():
    return {unit: digest.of_unit(unit) for unit in UNITS}


def changed_by(file, before, monkeypatch):
    """The units whose digest is another one when `file` has one line more."""
    assert (COURSE / file).is_file()
    monkeypatch.setattr(digest, "_modules", MODULES)
    monkeypatch.setattr(digest, "_content", lambda path: CONTENT(path) + b"\n" * (path == COURSE / file))
    return {unit for unit in UNITS if digest.of_unit(unit) != before[unit]}


def test_the_same_course_has_the_same_digests(before):
    assert before == {unit: digest.of_unit(unit) for unit in UNITS} and len(set(before.values())) == len(UNITS)


@pytest.mark.parametrize(
    ("file", "units"),
    [
        ("grader/judging.py", ALL),
        ("grader/verdict.py", ALL),
        ("grader/gaps.py", ALL),
        ("grader/sandbox/watch_ranks.py", ALL),
        ("grader/sandbox/rank.py", ALL),
        ("grader/sandbox/limits.py", ALL),
        ("grader/sandbox/seccomp.py", ALL),
        ("grader/instructors/grade/work.py", ALL),
        ("grader/checks/criteria.py", ALL),
        ("grader/probes/pytorch_scripts.py", SCRIPTS),
        ("handson/pytorch/devices.py", SCRIPTS),
        ("handson/training/results.py", SCRIPTS),
        ("handson/training/data.py", SCRIPTS),
        ("grader/checks/run_job_scripts.py", JOBS),
        ("handson/pbs/resources.py", JOBS),
        ("grader/units/multi_gpu/multi_gpu_pytorch.py", {"multi_gpu"}),
        ("grader/units/multi_gpu/instructors/hidden_pytorch.toml", {"multi_gpu"}),
        ("grader/units/multi_node/probes/probe_multi_node_pytorch.py", {"multi_node"}),
        ("grader/units/multi_node/oracles/oracle_multi_node_chainer.py", {"multi_node"}),
        ("solutions/02_multi_gpu/pytorch/train_cifar_multi_gpu.py", {"multi_gpu"}),
        ("frameworks.txt", {"frameworks"}),
    ],
)
def test_a_change_of_what_a_verdict_depends_on_changes_its_digest(file, units, before, monkeypatch):
    assert changed_by(file, before, monkeypatch) >= units


@pytest.mark.parametrize(
    "file",
    [
        "grader/display.py",
        "grader/self_check.py",
        "grader/__init__.py",
        "grader/instructors/release.py",
        "grader/instructors/gradebook.py",
        "grader/instructors/reports/pages.py",
        "answers/multi_gpu/pytorch/train_cifar_multi_gpu.toml",
        "answers/multi_gpu/proof.py",
        "handson/compare.py",
        "handson/notebook/single_gpu.py",
        "handson/cluster/doctor.py",
        "handson/pbs/qdel.py",
        "docs/grading.md",
        "tests/grader/test_digest.py",
    ],
)
def test_a_change_of_anything_else_does_not(file, before, monkeypatch):
    assert changed_by(file, before, monkeypatch) == set()


@pytest.mark.parametrize(
    ("file", "unit"),
    [
        ("grader/units/single_gpu/single_gpu_pytorch.py", "multi_gpu"),
        ("grader/checks/run_job_scripts.py", "profiling"),
        ("grader/probes/pytorch_scripts.py", "start"),
    ],
)
def test_a_unit_does_not_depend_on_what_only_others_use(file, unit, before, monkeypatch):
    assert unit not in changed_by(file, before, monkeypatch)


def test_other_libraries_make_other_digests(before, monkeypatch):
    monkeypatch.setattr(digest, "_versions", lambda: ("3.14", "torch 3"))
    assert all(digest.of_unit(unit) != before[unit] for unit in UNITS)
