"""How long grading will take: a clock that only counts, against placings done by hand and by the Placer itself."""

import random
from types import SimpleNamespace

import pytest

from grader.course import UNITS
from grader.instructors.grade import estimate, grading, record, remembered, speed, work
from grader.instructors.grade.estimate import EstimateError
from grader.instructors.grade.work import Cost
from grader.probes import needs_frameworks

UNIT = "single_gpu"
KNOWN = {
    "start": 3.0,
    "dispatch": 0.0,
    "alone": 1.25,
    "together": 1.5,
    "share": 0.5,
    "spin": 0.1,
    "loading": {},
    "queues": {},
    "pieces": {},
}


@pytest.fixture(autouse=True)
def nothing_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def jobs(students):
    return [
        ((UNIT, number, gaps), ranks)
        for _ in range(students)
        for number, part in enumerate(UNITS[UNIT])
        for ranks, gaps in work.by_ranks(part)
    ]


def known(seconds=1.0, **changes):
    return KNOWN | {"pieces": {estimate.name(kind): [Cost(0.0, seconds, 0.0)] for kind, _ in jobs(1)}} | changes


@pytest.mark.parametrize(
    ("pieces", "hosts", "seconds"),
    [
        ([], [2], 0),
        ([(3, 1)], [2], 3),
        ([(1, 1), (1, 1), (2, 1)], [2], 2),  # the longest first
        ([(1, 2), (1, 1), (1, 1)], [2], 2),  # two ranks take both engines
        ([(1, 4), (1, 4)], [2], 2),  # four ranks take what the host has
        ([(2, 2), (2, 2)], [1, 3], 4),  # both ranks on one host
        ([(2, 2), (2, 2)], [2, 2], 2),
    ],
)
def test_pieces_are_placed_as_by_hand(pieces, hosts, seconds):
    assert estimate.makespan([(took, ranks, took) for took, ranks in pieces], hosts) == seconds


def test_the_expected_seconds_decide_the_order_and_the_others_when_it_ends():
    assert estimate.makespan([(1, 1, 1), (2, 1, 9), (3, 1, 3)], [1]) == 13
    assert estimate.makespan([(2, 1, 2), (2, 1, 2), (1, 1, 9)], [2]) == 11, (
        "a straggler that nobody expected is the last"
    )


def test_many_engines_wait_for_the_grader_that_gives_them_work():
    pieces = [(1.0, 1, 1.0)] * 1000
    assert estimate.makespan(pieces, [500]) == 2
    assert estimate.makespan(pieces, [500], dispatch=0.01) == pytest.approx(1000 * 0.01 + 1, rel=0.01)
    assert estimate.makespan(pieces, [10], dispatch=0.01) == pytest.approx(100 * 1.01, rel=0.1)


def test_a_large_class_takes_as_long_as_if_all_of_it_were_placed(monkeypatch):
    chance = random.Random(1)
    student = [(chance.uniform(0.1, 3), ranks) for ranks in (1, 1, 1, 2, 4)]
    pieces = [(took, ranks, took) for took, ranks in student] * 4000
    quickly = estimate.makespan(pieces, [16, 16])
    monkeypatch.setattr(estimate, "LEAST", len(pieces))
    assert quickly == pytest.approx(estimate.makespan(pieces, [16, 16]), rel=0.02)
    assert quickly >= sum(took * ranks for _, ranks, took in pieces) / 32


COST = Cost(0.2, 0.8, 0.5)


def graded(of_class, factor, start=4.0, spin=0.1, spun=None):
    """Let it remember a class whose pieces cost COST each, `factor` times as long as on an idle machine. Returns its
    seconds."""
    engines = [(kind, min(ranks, 2)) for kind, ranks in of_class]
    took = {
        kind: [(COST.seconds(count, factor * remembered.overhead(KNOWN, count, 2)), count, COST)] * 10
        for kind, count in engines
    }
    of_class_alone = KNOWN | {"start": start, "pieces": {estimate.name(kind): [COST] for kind, _ in of_class}}
    spun = spun or factor
    estimate.remember(took, len(of_class), 2, spun * start, 0.0, spun, spin)
    return estimate.seconds_of(of_class, [2], of_class_alone, spun, factor)


@pytest.fixture
def reference(monkeypatch, tmp_path):
    """A course whose authors have measured nothing that is true here."""
    monkeypatch.setattr(remembered, "REFERENCE", tmp_path / "reference.json")
    monkeypatch.setattr(remembered, "FIRM", 0.0)
    remembered.REFERENCE.write_text(
        remembered.json.dumps(KNOWN | {"pieces": {estimate.name(kind): [[10.0, 40.0, 0.0]] for kind, _ in jobs(1)}})
    )


@pytest.mark.parametrize(("then", "now"), [(1.0, 1.0), (3.0, 1.0), (1.0, 3.0)])
def test_what_a_grading_took_predicts_the_next_one_whatever_else_the_machine_does(reference, then, now):
    graded(jobs(10), then)
    expected = (
        graded(jobs(10), now)
        if then == now
        else now * 4
        + estimate.seconds_of(
            jobs(10), [2], KNOWN | {"start": 0.0, "pieces": {estimate.name(kind): [COST] for kind, _ in jobs(1)}}, now
        )
    )
    assert estimate.seconds_of(jobs(10), [2], remembered.read(), now) == pytest.approx(expected, rel=0.05)


def test_a_machine_that_has_not_graded_takes_what_others_took_at_its_speed(reference):
    assert remembered.read()["pieces"] and not remembered.place().exists()
    twice = remembered.at_speed(remembered.read(), 2 * KNOWN["spin"])
    assert estimate.seconds_of(jobs(5), [2], twice) == pytest.approx(
        2 * estimate.seconds_of(jobs(5), [2], remembered.read())
    )
    graded(jobs(1)[:1], 1.0)
    kept = remembered.read()["pieces"]
    first, second = (estimate.name(kind) for kind, _ in jobs(1)[:2])
    assert kept[first][0] == COST and kept[second] == [(10.0, 40.0, 0.0)]


def test_ranks_share_their_engines_cores_and_nothing_else_runs_while_the_engine_judges():
    assert Cost(1.0, 4.0, 0.5).seconds(1) == 5.5 and Cost(1.0, 4.0, 0.5).seconds(2, stretch=3.0) == 9.5


def test_a_small_grading_changes_little_of_what_is_known():
    assert remembered.averaged(1.0, 2.0, 5) < 1.05 and remembered.averaged(1.0, 2.0, 1000) > 1.9
    took, before = {"kind": [(4.0, 2, Cost(0.0, 4.0, 0.0))] * 100}, {"alone": 1.0, "together": 1.0}
    quiet = {"alone": 1.0, "together": pytest.approx(1.5)}
    assert remembered.slowdown(took, before, 1.0) == (pytest.approx(4 / 3), quiet), (
        "half of what a quiet grading took is overhead"
    )
    assert remembered.slowdown(took, before, 3.0) == (2.0, before), "a busy machine does not change the overhead"
    assert remembered.slowdown(took, before | {"together": 1.5}, 1.0, of=1) == (2.0, before | {"together": 1.5}), (
        "nor does a single engine, which has none"
    )


def test_other_systems_are_loaded_beside_the_first_pieces_once_on_this_machine_and_by_each_engine_of_several_hosts():
    kind = next(kind for kind in record.all_kinds() if needs_frameworks(UNITS[kind[0]][kind[1]].file))
    of_class = [(kind, 1)] * 8
    cheap = known(start=0.0, alone=1.0) | {"pieces": {estimate.name(kind): [Cost(1.0, 0.0, 0.0)]}, "loading": {}}
    slow = cheap | {"loading": {"grader.probes.load_frameworks": 10.0}}
    assert estimate.seconds_of(of_class, [2], cheap) == 4 and estimate.seconds_of(of_class, [2], slow) == 10
    assert estimate.seconds_of(of_class, [4], slow) == 10 and estimate.seconds_of(of_class, [2, 2], slow) == 12


def test_libraries_are_loaded_once_for_all_files_that_need_them_while_the_engines_start():
    slow = known() | {
        "loading": {
            "grader.probes.libraries": 5.0,
            "grader.probes.notebooks": 1.0,
            "grader.probes.load_frameworks": 90.0,
        }
    }
    scripts = [(kind, ranks) for kind, ranks in jobs(3) if UNITS[UNIT][kind[1]].file.endswith(".py")]
    for of_class, seconds in ((scripts, 5.0), (jobs(3), 6.0)):
        assert estimate.seconds_of(of_class, [2], slow, 2.0) - estimate.seconds_of(
            of_class, [2], known(), 2.0
        ) == pytest.approx(2 * (seconds - KNOWN["start"]))


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_few_pieces_of_a_kind_are_neither_all_dear_nor_all_cheap(count):
    """Drawn at random, two pieces were both dear in a quarter of all gradings."""
    kind, ranks = jobs(1)[0]
    costs = known(start=0.0, alone=1.0, together=1.0, dispatch=0.0) | {
        "pieces": {estimate.name(kind): [Cost(took, 0.0, 0.0) for took in (9.0, 1.0, 9.0, 1.0)]}
    }
    assert (
        estimate.seconds_of([(kind, ranks)] * count, [ranks], costs | {"loading": {}})
        == (count + 1) // 2 * 9 + count // 2
    )


@pytest.mark.slow
def test_more_engines_never_take_longer_and_a_queue_adds_its_wait():
    found = [estimate.seconds_of(jobs(500), [count], known()) for count in (1, 2, 8, 32)]
    assert found == sorted(found, reverse=True)
    remembered.write(known())
    remembered.add_queue("local", 600.0)
    lines = [line.split() for line in estimate.table([100, 1000], [2, 8, 512], 32)]
    assert lines[0] == ["students", "2", "engines", "8", "engines", "512", "engines"] and lines[1][0] == "100"
    assert estimate.at_site("local") == (2, 600.0) and estimate.at_site("local", 5.0) == (2, 5.0)
    assert estimate.table([1], [512], 32, 6000.0)[1].split()[1:] == ["1.7", "h"]


def test_the_time_left_follows_the_work_that_is_done_and_not_the_number_of_pieces():
    (short, _), (long, _), *_ = jobs(1)
    seconds = known(start=0.0) | {
        "pieces": {estimate.name(short): [Cost(0.0, 1.0, 0.0)], estimate.name(long): [Cost(1.0, 5.0, 2.0)]}
    }
    left = estimate.Left([(short, 1), (short, 1), (long, 1)], 100.0, seconds)
    left.finish(short)
    assert left.after(2.0) == pytest.approx(0.5 * 18 + 0.5 * 98, rel=0.01), "half by the pace of the tenth that is done"
    left.finish(long)
    assert left.after(20.0) == pytest.approx(20 / 9, rel=0.01)
    left.finish(short)
    assert left.after(22.0) == pytest.approx(0)


def test_what_cannot_be_estimated_is_said_in_one_sentence():
    with pytest.raises(EstimateError, match="--engines 2,x is no list"):
        estimate.numbers("--engines", "2,x")
    assert estimate.seconds_of(
        [(("single_gpu", 9, ("new",)), 1)], [2], known()
    ) is None and "not known" in estimate.sentence(None, [2])
    assert estimate.sentence(59.6, [2]) == "Estimate: 60 s on 2 engines."
    assert (
        estimate.sentence(59.6, [2, 2], 40)
        == "Estimate: 60 s on 4 engines of 2 hosts; without the other programs that use this machine now, 40 s."
    )
    quiet, busy = (estimate.in_words(jobs(5), [2], known(), spun)[1] for spun in (1.1, 3.0))
    assert "without" not in quiet and "without the other programs" in busy
    remembered.place().parent.mkdir(parents=True)
    for broken in (
        '{"pieces": 3}',
        "no JSON",
        (
            '{"pieces": {"a": 2.0}, "start": 1, "dispatch": 0, "alone": 1, "together": 1, "share": 1, "spin": 1,'
            ' "loading": {}, "queues": {}}'
        ),
    ):
        remembered.place().write_text(broken)
        assert remembered.read()["spin"] == remembered.json.loads(remembered.REFERENCE.read_text())["spin"]


def test_the_engines_of_a_cluster_compute_for_a_hundredth_of_the_grading_and_silent_ones_are_named():
    remembered.write(known(spin=0.1))
    asked = []

    def of_cluster(students, answers):
        engines = SimpleNamespace(ids=lambda: [0, 1], ask=lambda function: asked.append(function) or answers)
        return grading._of_cluster(engines, jobs(students))

    assert of_cluster(5, [("a", (1.0, 0.1)), ("b", (1.0, 0.1))]).endswith(" on 2 engines of 2 hosts.")
    assert asked[0].func is speed.here and asked[0].args == (1, estimate.seconds_of(jobs(5), [2], remembered.read()))
    assert (
        of_cluster(1, []) == "How long this takes is not known: no engine has shown within 10 seconds how fast it is."
    )


def test_pieces_have_the_share_of_a_spins_slowdown_that_they_had_before(reference):
    assert remembered.slowed(1.0, KNOWN) == 1.0 and remembered.slowed(5.0, KNOWN) == 3.0
    graded(jobs(10), 3.0, spun=9.0)
    assert remembered.slowed(9.0, remembered.read()) == pytest.approx(3.0)
    graded(jobs(10), 1.0, spun=1.2)
    assert remembered.slowed(9.0, remembered.read()) == pytest.approx(3.0), (
        "a machine with hardly any load says nothing about it"
    )


@pytest.mark.slow
def test_a_recording_grades_right_wrong_and_untouched_answers_and_keeps_what_other_units_cost(reference, monkeypatch):
    other = estimate.name(("start", 0, ("workers", "prediction")))
    stale = {estimate.name(("start", 99, ("gone",))): [[1.0, 1.0, 0.0]]}
    remembered.REFERENCE.write_text(remembered.json.dumps(KNOWN | {"pieces": {other: [[0.125, 0.25, 0.5]]} | stale}))

    def played(submissions, out, units, say):
        handed_in = {
            path.name: {file.name: file.read_bytes() for file in path.rglob("*.*") if file.is_file()}
            for path in submissions.iterdir()
        }
        assert len(handed_in) == 1 + 2 * record.WRONG and set(handed_in["student000"]) == {
            part.file.rpartition("/")[2] for part in UNITS[UNIT]
        }
        scripts = [files["train_cifar_single_gpu.py"] for files in handed_in.values()]
        assert b"PUT YOUR CODE" in handed_in["untouched"]["train_cifar_single_gpu.py"] and len(set(scripts)) > 4, (
            "wrong answers differ"
        )
        assert scripts.count(handed_in["student000"]["train_cifar_single_gpu.py"]) == record.WRONG, (
            "half of the answers are right"
        )
        assert not remembered.of_this_machine(), "nothing that was graded here before counts"
        graded(jobs(1), 3.0)

    monkeypatch.setattr(record, "grade", played)
    monkeypatch.setattr(record, "loading_seconds", lambda units: {"grader.probes.notebooks": 0.25})
    said = []
    record.record(said.append, [UNIT])
    known = remembered.read_reference()
    assert known["pieces"][other] == [Cost(0.125, 0.25, 0.5)] and set(known["pieces"]) == {other} | {
        estimate.name(kind) for kind, _ in jobs(1)
    }
    assert set(known["pieces"][estimate.name(jobs(1)[0][0])]) == {COST} and known["together"] == KNOWN["together"], (
        "a busy machine does not change the overhead"
    )
    assert known["loading"] == {"grader.probes.notebooks": 0.25}
    assert f"{len(jobs(1)) + 1} of " in said[-1] and not remembered.of_this_machine()


def test_where_the_course_knows_the_costs_of_a_unit_it_knows_those_of_most_kinds_of_checks():
    known = remembered.read_reference()["pieces"]
    units = {name.split("/")[0] for name in known}
    assert units <= {*UNITS}
    for unit in units:
        names = [estimate.name(kind) for kind in record.all_kinds() if kind[0] == unit]
        assert len(set(names) & set(known)) > len(names) / 2, f"{unit}: type python -m grader estimate --record"


@pytest.mark.parametrize(("expected", "turns"), [(None, speed.MOST), (3, speed.LEAST), (60, 60), (5000, speed.MOST)])
def test_the_longer_a_class_takes_the_longer_its_machine_is_measured(expected, turns, monkeypatch):
    asked = []

    def popen(command, **_):
        asked.append(command)
        return SimpleNamespace(communicate=lambda timeout: ("[1.0, 0.01]", None))

    monkeypatch.setattr(speed.subprocess, "Popen", popen)
    assert speed.here(1, expected) == (1.0, 0.01)
    assert [command[-1] for command in asked] == [str(turns)]
