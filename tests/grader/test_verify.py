"""`python -m grader verify` finds what is wrong with checks, and names it; that nothing is wrong with the course's is
in test_known_answers.py."""

from dataclasses import replace

import pytest

from answers import known, verify
from answers.known import Answer
from grader import exercises
from grader.checks.check import Check, CheckError, Criterion
from grader.checks.notebook_functions import function
from grader.course import UNITS
from grader.gaps import GapError, answers
from handson.cluster import site

JOB = next(part for part in UNITS["multi_gpu"] if part.file.endswith(".sh"))
NOTEBOOK = UNITS["start"][0]


def problems(unit, part, server_for, answers=known.of_part):
    return list(verify.problems(unit, part, server_for(part.file), answers))


def test_a_gap_of_a_notebook_without_an_answer_is_named(server_for, monkeypatch):
    lost = "no_such_answer"
    checks = tuple(
        replace(check, cases=tuple(case | {"gap": lost} for case in check.cases)) if check.given else check
        for check in NOTEBOOK.checks
    )
    found = problems("start", replace(NOTEBOOK, checks=checks), server_for)
    assert found and all("notebooks/00_start.ipynb: the solution of " in sentence for sentence in found)
    assert any(f"cannot create its inputs (KeyError: '{lost}')" in sentence for sentence in found)


def test_a_mistake_that_is_not_caught_and_a_right_answer_that_is_not_accepted_are_named(server_for):
    code = answers(JOB_TEXT)["resources"]
    mistake = Answer("resources", "nothing wrong", code, "queue")
    variant = Answer("resources", "no queue", code.replace("#PBS -q lecture\n", ""))
    wrong, refused = problems("multi_gpu", JOB, server_for, lambda unit, part: ([mistake], [variant]))
    assert 'the mistake "nothing wrong" in resources is not caught as it should be by queue: passed' in wrong
    assert 'a right answer to resources gets no points for "the job uses the right queue"' in refused


def test_two_mistakes_that_read_the_same_sentence_are_named_unless_one_says_so(server_for):
    other = answers(JOB_TEXT)["resources"].replace("-q lecture", "-q other")
    found = [Answer("resources", "another", other, "queue"), Answer("resources", "a third", other, "queue")]
    [same] = problems("multi_gpu", JOB, server_for, lambda unit, part: (found, []))
    assert '"another" and "a third", read the same sentence' in same
    found[1] = replace(found[1], same_as="another")
    assert problems("multi_gpu", JOB, server_for, lambda unit, part: (found, [])) == []


JOB_TEXT = exercises.solution(JOB.file).read_text()


@pytest.mark.thorough
def test_the_chosen_site_decides_on_solutions_and_not_on_known_mistakes(server_for, monkeypatch, tmp_path):
    """These are written for the local site."""
    for name in ("local", "reedbush"):
        (tmp_path / f"{name}.toml").write_text((site.SITES / f"{name}.toml").read_text())
    (tmp_path / "bare.toml").write_text('queue = "edu"\n[machine]\nnodes = 8\ngpus = 0\n')
    monkeypatch.setattr(site, "SITES", tmp_path)
    for name in ("reedbush", "bare"):
        (tmp_path / "CHOSEN").write_text(name)
        assert problems("multi_gpu", JOB, server_for) == []


def test_what_a_unit_lacks_is_named_with_the_file_where_it_belongs(monkeypatch):
    check = Check("resources", "any:probe", (), (Criterion("colour", "the colour", 1, lambda *seen: None, ""),))
    wrong = [Answer("resourses", "typo", "", "x"), Answer("resources", "n", "", "couleur")]
    monkeypatch.setattr(known, "of_part", lambda unit, part: (wrong, []) if unit == "own" else ([], []))
    monkeypatch.setattr(verify.hidden, "cases", lambda: {("own", "", "resource"): ({},)})
    found = list(verify.lacking("own", (replace(JOB, checks=(check,)),)))
    file = "answers/own/run_multi_gpu_training.toml"
    assert found == [
        f"{file} has known answers (1) to resourses, which has no check: correct the name, or remove them",
        f'{file}: "n" names the criterion couleur, which the check of resources does not have',
        f'own, {JOB.file}: no wrong answer proves colour of resources: add [resources.wrong."NAME"] to {file}',
        f'own, {JOB.file}: resources has no right answer but the solution: add [resources.right."NAME"] to {file}',
        "grader/units/own/instructors/hidden_shared.toml has cases for resource, which has no check: correct the name,"
        " or remove them",
    ]


def test_tracks_with_different_points_are_named():
    parts = [
        replace(JOB, track=track, checks=(function("a", "it", "", points=points),))
        for track, points in (("pytorch", 1), ("chainer", 2))
    ]
    assert "own: the tracks have different points (pytorch 1, chainer 2): make them equal" in verify.lacking(
        "own", parts
    )


def test_an_unknown_unit_is_refused():
    with pytest.raises(verify.VerifyError, match="there is no unit multi_gpus: choose from start, "):
        verify.verify(["multi_gpus"])


def test_the_command_reports_exercises_that_are_not_released_and_ends_with_1(monkeypatch):
    def stale(*arguments, **options):
        raise GapError("exercises is not what the solutions give: run `python -m grader release`")

    monkeypatch.setattr(verify, "release", stale)
    monkeypatch.setattr(verify, "UNITS", {"own": ()})
    said = []
    assert verify.verify(say=said.append) is False
    assert said[1:] == [
        "exercises is not what the solutions give: run `python -m grader release`",
        "1 thing to put right: see above, then verify again.",
    ]


def test_the_command_reads_the_file_of_the_course_and_compares_its_site(monkeypatch, tmp_path):
    (tmp_path / "course.toml").write_text('site = "reedbush"\n')
    monkeypatch.setattr(verify.rules, "FILE", tmp_path / "course.toml")
    monkeypatch.setattr(verify, "release", lambda *arguments, **options: None)
    monkeypatch.setattr(verify, "UNITS", {"own": ()})
    monkeypatch.setattr(site, "chosen", lambda: "local")
    said = []
    assert verify.verify(say=said.append) is False
    assert said[1] == "course.toml names the site reedbush, but the chosen one is local: run `python -m grader release`"
    (tmp_path / "course.toml").write_text("[units.multi_gpus]\npoints = 3\n")
    assert verify.verify(say=said.append) is False
    assert "did you mean 'multi_gpu'?" in said[-2]


@pytest.mark.parametrize(
    "text, words",
    [
        ('[a.wrong."x"]\ncode = "1"\n', "has no key criterion"),
        ('[a.wrong."x"]\ncriterion = "y"\ncode = "1"\ncoed = "2"\n', "has an unknown key coed"),
        ('[[mutants]]\nname = "x"\n', "has mutants, but known answers are"),
        ('[a.rigth."x"]\ncode = "1"\n', "has rigth, but known answers are"),
    ],
)
def test_a_known_answer_with_a_wrong_key_is_named_with_its_file(tmp_path, text, words):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(known.AnswerError, match=f"a.toml: .*{words}"):
        known.read(tmp_path / "a.toml")


@pytest.mark.parametrize("points", ["3", -3, None, float("nan")])
def test_points_of_a_check_that_are_no_number_are_named(points):
    with pytest.raises(CheckError, match="the criterion 'colour' .* has points=.*, but it must be a number, 0 or more"):
        Criterion("colour", "the colour", points, lambda *seen: None, "")
