"""Which engine does what: with engines that are played by the test."""

import itertools
import os
from types import SimpleNamespace

import pytest

from grader.instructors.grade import ipp_cluster, placing, work
from grader.instructors.grade.placing import ControllerLost, EnginesLost, Placer
from grader.verdict import GRADER_FAULT


class Result:
    def __init__(self, engines, engine, piece):
        self.engines, self.engine, self.piece = engines, engine, piece

    def ready(self):
        return self.engines.ready(self)

    def get(self, timeout):
        return self.engines.answer(self)


class Engines:
    """Engines that finish what they do when the test says so; by default at once."""

    def __init__(self, count):
        self.there = list(range(count))
        self.log, self.ended = [], []
        self.fail, self.controller, self.hosts = {}, True, {}
        self.alone = 60
        self.on_submit = lambda engine, piece: None

    def ids(self):
        return list(self.there)

    def host(self, engine):
        return self.hosts.get(engine, "here")

    def cores(self, engines):
        return tuple(engines)

    def submit(self, engine, function, piece, *arguments):
        self.log.append((engine, piece.student))
        self.on_submit(engine, piece)
        return Result(self, engine, piece)

    def ready(self, result):
        return result.engine in self.there

    def answer(self, result):
        if self.fail.get(result.piece.student, 0):
            self.fail[result.piece.student] -= 1
            raise OSError("the engine fell over")
        return work.Done([])

    def forget(self, result):
        pass

    def wait(self, seconds):
        pass

    def end(self, engine):
        self.ended.append(engine)

    def replace_lost(self):
        pass

    def controller_alive(self):
        return self.controller


def piece(student, ranks=1, part=0):
    return work.Piece(student, "", "single_gpu", part, ("device",), ranks, "")


def done(placer):
    return [(piece.student, verdicts) for piece, verdicts in placer.results()]


def test_every_piece_is_done_once():
    engines = Engines(2)
    found = done(Placer(engines, [piece(f"s{number}") for number in range(50)]))
    assert sorted(student for student, _ in found) == sorted(f"s{number}" for number in range(50))
    assert len(engines.log) == 50


def test_a_piece_waits_for_another_engine_if_its_engine_ends_before_it_has_it():
    engines, gone = Engines(2), []

    def ends(engine, piece):
        if not gone:
            gone.append(piece.student)
            engines.there.remove(engine)
            raise IndexError(f"No such engine: {engine}")

    engines.on_submit = ends
    found = done(Placer(engines, [piece("one"), piece("other")]))
    assert sorted(student for student, _ in found) == ["one", "other"] and gone


def test_a_piece_of_several_ranks_takes_as_many_engines():
    engines, busy, most = Engines(4), [], []
    engines.ready = lambda result: False
    placer = Placer(engines, [piece("wide", 3), piece("wide2", 3), piece("slim", 1)])
    placer._take()
    placer._place()
    assert [student for _, student in engines.log] == ["wide", "slim"], (
        "one engine was left for the short piece, none for the wide"
    )
    assert sorted(engine for _, _, taken, _ in placer.running.values() for engine in taken) == [0, 1, 2, 3]


def test_what_needs_no_libraries_goes_first_as_long_as_nothing_is_known_and_then_the_longest():
    engines = Engines(1)
    script, job_script, notebook = (
        piece(name, 1, part) for part, name in ((0, "script"), (2, "job script"), (3, "notebook"))
    )
    done(Placer(engines, [script, notebook, job_script]))
    assert [student for _, student in engines.log] == ["notebook", "job script", "script"]
    engines.log.clear()
    done(
        Placer(
            engines,
            [notebook, script, job_script],
            seconds={notebook.kind: 0.1, script.kind: 3.0, job_script.kind: 0.01},
        )
    )
    assert [student for _, student in engines.log] == ["script", "notebook", "job script"]


def test_engines_of_ours_have_a_core_each_where_there_are_as_many(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {4, 5, 6})
    client = SimpleNamespace(ids=[0, 1, 2])
    ours = ipp_cluster.Engines(client, 3, cluster="of ours")
    assert [ours.cores([engine]) for engine in (0, 1, 2)] == [(4,), (5,), (6,)]
    assert sorted(ours.cores([2, 0])) == [4, 6]
    client.ids = [0, 2, 3]
    assert ours.cores([3]) == (5,), "that of the one that was lost"
    client.ids = [0, 2, 3, 7, 8]
    assert sorted(ours.cores([7, 8])) == [4, 5], "more engines than cores share them"
    assert ipp_cluster.Engines(client, 2, cluster="of ours").cores([0]) == (), "the kernel has a choice"
    assert ipp_cluster.Engines(client, 3).cores([0]) == (), "of others, who know better"


@pytest.mark.parametrize(
    ("hosts", "busy", "ranks", "takes"),
    [
        ("aabbb", "", 2, [0, 1]),  # where just enough are free
        ("aabbb", "", 3, [2, 3, 4]),
        ("aabbb", "2", 2, [0, 1]),
        ("abbb", "", 1, [0]),
        ("aabbb", "0", 3, [2, 3, 4]),
        ("aabbb", "2", 3, None),  # soon enough will be free on one host
        ("abb", "", 3, [1, 2]),  # all of the host that has most
        ("abbcc", "", 4, [1, 2]),
        ("abbcc", "1", 4, [3, 4]),
        ("abb", "1", 3, None),
        ("ab", "", 4, [0]),
        ("ab", "0", 4, [1]),
        ("?aa", "0", 3, None),  # the first may be on the same host as the others
        ("?aa", "0", 2, [1, 2]),
        ("?aaa", "0", 3, [1, 2, 3]),
    ],
)
def test_a_piece_takes_engines_of_one_host(hosts, busy, ranks, takes):
    free = [engine for engine in range(len(hosts)) if str(engine) not in busy]
    assert (
        placing.chosen(ranks, free, {engine: None if host == "?" else host for engine, host in enumerate(hosts)})
        == takes
    )


@pytest.mark.parametrize("trusted", [False, True])
def test_a_piece_of_more_ranks_than_each_host_has_engines_takes_all_of_one_host(trusted):
    engines, submitted = Engines(4), []
    engines.hosts = dict(enumerate("abba"))

    def submit(*arguments):
        submitted.append(arguments)
        return Result(engines, arguments[0], arguments[2])

    engines.submit = submit
    wide = piece("wide", 4)
    assert done(Placer(engines, [wide], trusted)) == [("wide", [])]
    assert submitted == [(0, work.run, wide, trusted, (0, 3))]


def test_nothing_is_given_to_an_engine_before_it_has_said_where_it_is():
    engines, asked = Engines(2), []
    engines.host = lambda engine: asked.append(engine) or ("here" if engine == 1 or len(asked) > 8 else None)
    done(Placer(engines, [piece("wide", 2), piece("slim")]))
    assert engines.log == [(1, "slim"), (0, "wide")]


def test_long_pieces_of_fewer_ranks_do_not_keep_others_waiting_for_ever():
    """One of two engines is always busy when the other becomes free, as long as there are pieces for one engine."""
    engines, turns = Engines(2), []
    engines.wait = turns.append
    engines.ready = lambda result: len(turns) % 2 == result.engine
    wide, slim = piece("wide", 2), piece("slim", 1, 1)
    placer = Placer(engines, itertools.cycle([slim, slim, wide]), seconds={slim.kind: 1e300})
    found = [piece for piece, _ in itertools.islice(placer.results(), 200)]
    assert found.count(wide) > 40


def test_a_piece_of_more_ranks_than_engines_takes_all_of_them():
    engines = Engines(2)
    assert len(done(Placer(engines, [piece("wide", 4)]))) == 1


def test_the_longest_goes_first():
    engines = Engines(1)
    seconds = {("single_gpu", 0, (name,)): length for name, length in (("a", 1.0), ("b", 9.0), ("c", 4.0))}
    pieces = [work.Piece(name, "", "single_gpu", 0, (name,), 1, "") for name in "abc"]
    list(Placer(engines, pieces, seconds=seconds).results())
    assert [student for _, student in engines.log] == ["b", "c", "a"]


def test_what_an_engine_that_ends_was_doing_is_done_elsewhere():
    engines = Engines(2)

    def die(engine, piece):
        if piece.student == "unlucky" and len(engines.there) == 2:
            engines.there.remove(engine)

    engines.on_submit = die
    found = done(Placer(engines, [piece("unlucky"), piece("other")]))
    assert sorted(student for student, _ in found) == ["other", "unlucky"]
    assert [student for _, student in engines.log].count("unlucky") == 2


def test_what_fails_once_is_tried_again():
    engines = Engines(1)
    engines.fail = {"ann": placing.TRIES - 1}
    assert done(Placer(engines, [piece("ann")])) == [("ann", [])]


def test_what_fails_always_is_ungraded_and_never_a_zero():
    engines = Engines(1)
    engines.fail = {"ann": 99}
    [(_, verdicts)] = done(Placer(engines, [piece("ann")]))
    assert verdicts and all((verdict.status, verdict.points) == (GRADER_FAULT, None) for verdict in verdicts)
    assert "the engine fell over" in verdicts[0].message
    assert len(engines.log) == placing.TRIES


def test_an_engine_that_does_not_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(work, "patience", lambda piece: 0.01)
    engines = Engines(2)
    engines.ready = lambda result: result.engine == 1
    assert done(Placer(engines, [piece("ann")])) == [("ann", [])]
    assert [engine for engine, _ in engines.log] == [0, 1]
    assert engines.ended == [0]


def test_without_a_controller_nothing_is_waited_for():
    engines = Engines(1)
    engines.controller = False
    with pytest.raises(ControllerLost):
        done(Placer(engines, [piece("ann")]))


def test_without_engines_it_ends_and_what_was_done_before_is_kept(monkeypatch):
    engines, clock = Engines(1), itertools.count()
    monkeypatch.setattr(placing.time, "monotonic", lambda: float(next(clock)))

    def leave_after_the_first(engine, piece):
        engines.there = engines.there if len(engines.log) == 1 else []

    engines.on_submit = leave_after_the_first
    found = []
    with pytest.raises(EnginesLost):
        for one, _ in Placer(engines, [piece("ann"), piece("bob")]).results():
            found.append(one.student)
    assert len(found) == 1 and len(engines.log) == 2


def test_an_engine_that_comes_in_time_does_the_rest(monkeypatch):
    engines, clock = Engines(0), itertools.count()
    monkeypatch.setattr(placing.time, "monotonic", lambda: float(next(clock)))
    engines.wait = lambda seconds: next(clock) > 30 and engines.there.append(1) if not engines.there else None
    assert done(Placer(engines, [piece("ann")])) == [("ann", [])]


def test_pieces_are_taken_as_they_are_needed():
    taken = []

    def pieces():
        for number in range(1000):
            taken.append(number)
            yield piece(f"s{number}")

    results = Placer(Engines(1), pieces()).results()
    next(results)
    assert len(taken) <= 2 * placing.AHEAD
