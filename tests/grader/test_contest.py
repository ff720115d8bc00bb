"""The challenge: the grader trains with a student's code on two virtual nodes, measures it itself, and shows the class
who was fastest."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import torch
from classes import handed_in, said, store

from grader import exercises, judging
from grader.course import UNITS
from grader.gaps import fill
from grader.instructors import rules
from grader.instructors.grade.work import readable
from grader.instructors.gradebook import Gradebook
from grader.instructors.reports import leaderboards, scores_of, write_reports
from grader.probes import FOR_SCRIPTS
from grader.sandbox import Limits, Server
from grader.sandbox.on_nodes import Nodes
from grader.units.challenge import contest
from grader.verdict import NOT_ATTEMPTED, OUT_OF_MEMORY, PASSED, TIMEOUT
from handson import challenge_limits as challenge
from handson.cluster import virtual_nodes
from handson.made_text import made_text
from handson.notebook import challenge_figure
from handson.pytorch.challenge_task import Task, loss_on
from handson.pytorch.language import LanguageModel
from handson.training.gpu_memory import OutOfMemory

ROOT = Path(__file__).resolve().parents[2]
FILE = "exercises/10_challenge/pytorch/challenge.py"
PART = next(part for part in UNITS["challenge"] if part.file == FILE)
TINY = contest.CASE | {"loss": 9.0, "learned": 9.0, "training": 2000, "plain_steps": 2, "unit": "challenge", "seed": 3}
SHORT = """
model = task.network()
optimizer = torch.optim.Adam(model.parameters(), lr=0.004)
text, following = next(task.batches(2))
loss_of(model(text), following).backward()
optimizer.step()
{more}
return model
"""
AS_USER = f"""
import os, sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests/grader")!r}]
os.environ["HOME"] = "/tmp"
from sandbox_runs import become
become("user")
from grader.instructors.grade.work import readable
from grader.sandbox import Limits
from grader.sandbox.on_nodes import Nodes
with Nodes(2, "100mbit", ("tests.grader.misbehaving",)) as nodes:
    ranks = nodes.run("tests.grader.misbehaving:write_and_send", [nodes.address, 1000], 1, Limits(), readable()).ranks
    print(os.geteuid(), [rank.observations for rank in ranks])
"""
needs_nodes = pytest.mark.skipif(virtual_nodes.why_not() is not None, reason=f"{virtual_nodes.why_not()}")


@pytest.fixture(scope="module")
def server():
    server = Server(FOR_SCRIPTS)
    yield server
    server.stop()


def text_with(code, prediction="SPEED_UP = 1.5"):
    return exercises.solved(FILE, train=code, prediction=prediction)


def source(text):
    return {"file": "challenge.py", "text": text, "code": "", "line": 1}


def judged(seen, **fields):
    """{criterion's id: what is wrong} of what a contest has seen."""
    seen = {"loss": 1.0, "problem": "", "memory": 1, "predicted": 2.0, "speed_up": 2.0, "others": 0.0} | seen
    check = contest.CHECKS[-1]
    return {one.id: one.judge([seen], contest.CASE | fields, None) for one in check.criteria}


def test_a_text_follows_from_its_seed_and_each_seed_has_words_of_its_own():
    text = made_text(1, 5000)
    assert len(text) == 5000 and text == made_text(1, 5000) and text == made_text(1, 9000)[:5000]
    words = [set(re.findall(r"[a-z]+", made_text(seed, 5000).decode().lower())) for seed in (1, 2)]
    assert min(map(len, words)) > 50 and len(words[0] & words[1]) < 10


def test_a_byte_sees_no_later_one():
    torch.manual_seed(0)
    network, text = LanguageModel(8, width=16, heads=2, blocks=2), torch.arange(8)[None]
    later = text.clone()
    later[0, 5] = 200
    before, after = network(text), network(later)
    assert torch.equal(before[0, :5], after[0, :5]) and not torch.equal(before[0, 5:], after[0, 5:])


def test_ranks_begin_with_one_network_and_draw_batches_of_their_own_unless_they_share_a_stream():
    text = torch.frombuffer(bytearray(made_text(0, 5000)), dtype=torch.uint8)
    tasks = [Task(text, 7, rank, 4, torch.device("cpu")) for rank in (0, 1)]
    first = [torch.cat([one.flatten() for one in task.network().parameters()]) for task in tasks]
    assert torch.equal(*first)
    [(one, following), (other, _)] = [next(task.batches(3)) for task in tasks]
    assert torch.equal(one[:, 1:], following[:, :-1]) and not torch.equal(one, other)
    assert torch.equal(*(next(task.batches(3, stream=0))[0] for task in tasks))
    assert loss_on(tasks[0].network(), text[: 4 * (challenge.LENGTH + 1)]) == pytest.approx(5.6, abs=0.5)


def test_the_loss_and_the_prediction_are_judged_by_what_was_measured():
    assert judged({}) == {"within_limits": None, "reaches_loss": None, "prediction": None}
    assert "1.600" in judged({"loss": 1.6}, loss=1.5)["reaches_loss"]
    assert "NaN" in judged({"loss": None})["reaches_loss"]
    assert judged({"predicted": 3.9})["prediction"] is None and judged({"predicted": 1.1})["prediction"] is None
    assert judged({"predicted": 8.0, "others": 0.5})["prediction"] is None  # on a busy machine a time says little
    assert judged({"predicted": 80.0, "others": 0.5})["prediction"]
    assert "4.1" in judged({"predicted": 4.1})["prediction"] and judged({"predicted": None})["prediction"]


def test_out_of_memory_names_a_remedy_that_a_solution_has():
    held = {"parameters": 2**20, "gradients": 2**20, "optimizer": 2**20, "activations": 4 * 2**20}
    for network in (False, True):
        sentence = challenge.out_of_memory(OutOfMemory("virtual GPU 0", 2**20, challenge.MEMORY, held, network=network))
        assert sentence.startswith("virtual GPU 0 is out of memory") and sentence.count(": ") == 2
        assert "windows" in sentence and "--" not in sentence and "smaller network" not in sentence


def test_the_figure_of_the_challenge_describes_each_run():
    memory = [{"peak": {"parameters": 2**20, "activations": 3 * 2**20}}, {"peak": {"parameters": 2**20}}]
    run = SimpleNamespace(seconds=12.0, log=[{"bytes": 5e6}], memory=memory)
    alt = challenge_figure.picture({"plain": run, "challenge": run}, {"challenge": 9.0}).alt
    assert alt.count("12.0 s, 5.0 MB sent, 4.0 MiB of memory") == 2 and alt.endswith(".")
    assert challenge_figure.picture({"plain": run, "challenge": run}).alt == alt


def test_a_network_that_was_not_trained_gets_nothing():
    wrong = judged({"loss": 5.6})
    assert wrong["within_limits"] and wrong["reaches_loss"]


def test_whoever_predicts_nothing_is_asked_to():
    text = fill(exercises.given_out(FILE), {"train": "return task.network()"})
    [*_, verdict] = judging.judge("challenge", (PART,), lambda file: text, None)
    assert verdict.status == NOT_ATTEMPTED and "prediction" in verdict.message


@needs_nodes
def test_nodes_share_no_files_and_every_byte_between_them_is_counted():
    with Nodes(2, "100mbit", ("tests.grader.misbehaving",)) as nodes:
        outcome = nodes.run("tests.grader.misbehaving:behave", [], 2, Limits(), readable())
        assert [(rank.observations["rank"], rank.observations["ranks"]) for rank in outcome.ranks] == [
            (rank, 4) for rank in range(4)
        ]
        before = nodes.bytes_sent()
        arguments = [nodes.address, 300_000]
        outcome = nodes.run("tests.grader.misbehaving:write_and_send", arguments, 1, Limits(), readable())
        assert [rank.observations for rank in outcome.ranks] == [["of rank 0"], ["of rank 1"]], outcome.ranks
        assert 300_000 < nodes.bytes_sent() - before < 400_000


@needs_nodes
@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_has_such_nodes_too():
    done = subprocess.run([sys.executable, "-c", AS_USER], cwd="/", capture_output=True, text=True, timeout=120)
    assert done.stdout.split("\n")[0] == "54321 [['of rank 0'], ['of rank 1']]", done.stderr


@needs_nodes
def test_a_contest_measures_a_training_beside_the_plain_solution(server):
    code = SHORT.format(
        more="dist.all_reduce(torch.ones(100_000))\nimport time\ntime.monotonic = time.time = lambda: 0.0"
    )
    [(_, [seen], outcome)], bad = contest.run([TINY], source(text_with(code)), server, readable())
    assert bad is None and judged(seen, **TINY) | {"prediction": None} == dict.fromkeys(
        ("within_limits", "reaches_loss", "prediction")
    )
    measured = outcome.measured
    assert 0 <= measured["others"] < 1.1
    assert (
        measured["bytes"] > 600_000 and measured["plain_bytes"] > 1_000_000
    )  # a ring's 2 x 3/4 of 400 KB, on each node
    assert 1_000_000 < measured["memory"] < TINY["memory"] and measured["predicted"] == 1.5
    assert 0 < measured["seconds"] and measured["speed_up"] == measured["plain_seconds"] / measured["seconds"]
    assert "times as fast as the plain solution" in outcome.ranks[0].output


@needs_nodes
@pytest.mark.thorough
def test_all_windows_at_once_do_not_fit(server):
    code = "from handson.pytorch import plain_training\nreturn plain_training.train(task, micro_batches=1)"
    seen, (_, outcome) = contest.run([TINY], source(text_with(code)), server, readable())
    assert seen == [] and OUT_OF_MEMORY in {rank.status for rank in outcome.ranks}
    assert any("out of memory" in rank.message for rank in outcome.ranks)


@needs_nodes
@pytest.mark.thorough
def test_a_training_without_end_is_ended(server, monkeypatch):
    monkeypatch.setattr(contest, "LIMITS", replace(contest.LIMITS, wall_seconds=4))
    seen, (_, outcome) = contest.run([TINY], source(text_with("while True:\n    pass")), server, readable())
    assert seen == [] and {rank.status for rank in outcome.ranks} == {TIMEOUT}
    assert "within 4 s" in outcome.ranks[0].message


@needs_nodes
@pytest.mark.thorough
def test_three_solutions_get_points_and_places(server, tmp_path):
    """A contest of the real size: the solution and two known answers that are written otherwise."""
    from answers import known

    _, right = known.of_part("challenge", PART)
    texts = [exercises.solved(FILE), *(exercises.solved(FILE, **{one.gap: one.code}) for one in right)][:3]
    with Gradebook(tmp_path) as book:
        for number, text in enumerate(texts):
            verdicts = list(judging.judge("challenge", (PART,), lambda file: text, server, {}, readable(), 11))
            assert {verdict.status for verdict in verdicts} == {PASSED}, verdicts
            store(book, handed_in(f"student{number}", digest=str(number)), verdicts)
        board = [row.measured for row in leaderboards.standings(scores_of(book), tmp_path)["challenge"]]
    assert len(board) == 3 and board[0]["speed_up"] >= board[-1]["speed_up"]
    # on a busy machine a time says little
    assert all(found["speed_up"] > 1 for found in board if found["others"] < contest.BUSY)


def measured(speed_up, **fields):
    found = {"speed_up": speed_up, "loss": 1.4, "memory": 5 << 20, "predicted": 2.0, "seconds": 5.0, "bytes": 3e6}
    return found | {"plain_seconds": 5.0 * speed_up, "plain_bytes": 60e6, "others": 0.0} | fields


@pytest.fixture
def contestants(tmp_path):
    """A gradebook in which two students have reached the loss, and a third one has not."""
    with Gradebook(tmp_path) as book:
        for student, speed_up in (("Anna Ohm", 1.75), ("Ben <b>", 3.25), ("Cara", None)):
            points, found = (4.0, measured(speed_up)) if speed_up else (0.0, None)
            verdict = said("train", points, 4.0, unit="challenge", track="", check="reaches a loss", measured=found)
            store(book, handed_in(student, digest=student), [verdict])
        yield book


def test_the_leaderboard_has_the_fastest_first_and_each_student_sees_no_names(contestants, tmp_path):
    board = leaderboards.standings(scores_of(contestants), tmp_path)["challenge"]
    assert [row.score.student for row in board] == ["Ben <b>", "Anna Ohm"]
    write_reports(contestants, tmp_path)
    assert 'href="leaderboard.html"' in (tmp_path / "report.html").read_text()
    page = (tmp_path / "leaderboard.html").read_text()
    assert page.index("Ben &lt;b&gt;") < page.index("Anna Ohm") and "Cara" not in page and "3.25" in page
    anna, cara = ((tmp_path / f"feedback/{name}.html").read_text() for name in ("Anna Ohm", "Cara"))
    assert "1.75 (you)" in anna and "3.25" in anna and "Ben" not in anna
    assert "(you)" not in cara and "not on the leaderboard" in cara


def test_students_see_pseudonyms_that_stay_the_same_and_the_instructor_sees_whose_they_are(
    contestants, tmp_path, monkeypatch
):
    monkeypatch.setattr(rules, "FILE", tmp_path / "course.toml")
    rules.FILE.write_text("pseudonyms = true\n")
    ben, anna = (row.pseudonym for row in leaderboards.standings(scores_of(contestants), tmp_path)["challenge"])
    assert ben.isalpha() and ben != anna
    write_reports(contestants, tmp_path)
    pages = [(tmp_path / name).read_text() for name in ("feedback/Anna Ohm.html", "leaderboard.html")]
    assert all(ben in page and anna in page for page in pages) and ["Ben" in page for page in pages] == [False, True]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()  # with a secret of its own
    assert leaderboards.standings(scores_of(contestants), elsewhere)["challenge"][0].pseudonym != ben


def test_the_leaderboard_follows_the_declaration_of_its_unit(contestants, tmp_path, monkeypatch):
    monkeypatch.setattr(leaderboards, "has_contest", lambda unit: False)
    write_reports(contestants, tmp_path)
    assert "Where you stand" not in (tmp_path / "feedback/Anna Ohm.html").read_text()


def test_a_class_without_contests_has_no_leaderboard(tmp_path):
    with Gradebook(tmp_path) as book:
        store(book, handed_in(), [said()])
        write_reports(book, tmp_path)
    assert "leaderboard.html" not in (tmp_path / "report.html").read_text()
    assert not (tmp_path / "leaderboard.html").exists()


def test_a_network_of_another_shape_is_no_answer():
    from grader.units.challenge.oracles import oracle_contest

    numbers = [parameter.detach().numpy() for parameter in LanguageModel(challenge.LENGTH).parameters()]
    unseen = numpy.frombuffer(made_text(0, 2 * (challenge.LENGTH + 1)), "uint8")
    assert oracle_contest.loss(0, 1, numbers, unseen)["loss"] == pytest.approx(5.6, abs=0.5)
    assert oracle_contest.loss(0, 1, numbers[:-1], unseen)["problem"]
    numbers[0] = numpy.full_like(numbers[0], numpy.nan)
    assert oracle_contest.loss(0, 1, numbers, unseen) == {"loss": None, "problem": ""}
