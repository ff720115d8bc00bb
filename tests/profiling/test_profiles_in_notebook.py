"""What the notebook on profiling asks of profiles, in ones that were made up."""

import made_profiles as made
import pytest

from grader.exercises import given_out
from handson.cluster.follow import JobFailed
from handson.notebook import profiled_runs
from handson.profiling.timeline import PARTS, ProfileError
from handson.training.results import ResultError


def two_ranks(*marks):
    """Two steps of 10 ms on two ranks; rank 1 comes 2 ms later to an all-reduce of 1 ms, in which it goes on to compute
    for half a ms."""
    timelines = []
    for rank, late in enumerate((0, 2)):
        events = [made.step(3, 0, 10), made.step(4, 10, 20)]
        for begin in 0, 10:
            events += [
                ("compute", begin, begin + 5.5 + late),
                ("communication", begin + 5 + late, begin + 8, "gloo:all_reduce"),
            ]
            events += [("range", begin + number, begin + number + 1 + rank, name) for number, name in enumerate(marks)]
        timelines.append(made.timeline(rank, sorted(events, key=lambda event: event[1])))
    return made.run(*timelines)


def test_waits_and_meetings_are_those_of_the_profile():
    run = two_ranks()
    begin, end = profiled_runs.meetings(run)
    assert (begin.T * 1e3).round(6).tolist() == [[0, 10], [2, 12]] and (end.T * 1e3).round(6).tolist() == [
        [3, 13],
        [3, 13],
    ]
    assert profiled_runs.waits(run) == {0: {1: pytest.approx(1.5e-3)}, 1: {0: 0.0}}  # 0.5 ms of it is hidden


def test_spans_are_what_one_rank_computes_and_communicates():
    compute, communication = profiled_runs.spans(two_ranks(), rank=1)
    assert [tuple(round(1e3 * moment, 6) for moment in span) for span in compute + communication] == [
        (0, 7.5),
        (10, 17.5),
        (7, 8),
        (17, 18),
    ]
    assert set(map(type, compute + communication)) == {tuple}  # as in the check: they can be sorted, and be in a set


def test_ranges_that_were_marked_are_measured_on_each_rank_and_drawn():
    run = two_ranks(*PARTS)
    assert profiled_runs.ranges(run) == {name: [pytest.approx(1e-3), pytest.approx(2e-3)] for name in PARTS}
    alt = profiled_runs.show_ranges(run).alt
    assert "forward 1.0 and 2.0 ms" in alt and alt.endswith(".")


def test_ranges_are_found_as_students_may_spell_them():
    """As in the check of train_steps.py, after which the notebook goes on."""
    assert profiled_runs.ranges(two_ranks("Forward", "BACKWARD", "all_reduce", "optimize ")).keys() == set(PARTS)
    assert profiled_runs.ranges(two_ranks("forward pass", *PARTS))["forward"] == [
        pytest.approx(1e-3),
        pytest.approx(2e-3),
    ]


def test_ranges_that_were_not_marked_are_named_in_a_sentence():
    with pytest.raises(
        ProfileError, match="a run has no ranges all-reduce, optimize: mark them in the script, save it"
    ):
        profiled_runs.show_ranges(two_ranks("forward", "backward"))


def test_how_often_ranks_meet_is_told(capsys):
    profiled_runs.collectives(two_ranks())
    assert "gloo:all_reduce                 1 call a step, 3.00 ms" in capsys.readouterr().out


def test_a_script_is_not_recorded_again_where_its_first_profile_is_to_be_kept(tmp_path, monkeypatch, capsys):
    submitted = []
    monkeypatch.setattr(
        profiled_runs,
        "follow",
        lambda job: (
            (tmp_path / "results/slow_before").mkdir(parents=True)
            or (tmp_path / "results/slow_before/result.json").touch()
        ),
    )
    monkeypatch.setattr(profiled_runs, "submit", lambda *words, **variables: submitted.append((words, variables)))
    monkeypatch.setattr(profiled_runs.readers, "load", lambda paths: [paths[0].name])
    for keep in (True, True, False):
        assert profiled_runs.of_script(tmp_path, "slow.py", "before", "--epoch 1", keep) == "slow_before"
    variables = {"SCRIPT": "slow.py", "NAME": "slow_before", "OPTIONS": "--epoch 1"}
    assert submitted == 2 * [((tmp_path, "-j", "oe", "run_profile.sh"), variables)]
    assert capsys.readouterr().out.count("was recorded before") == 1


def test_a_profile_job_without_requests_gets_those_of_the_training_script(tmp_path, monkeypatch):
    submitted = []
    monkeypatch.setattr(profiled_runs, "submit", lambda *words, **variables: submitted.append(words[1:]))
    for name, text in {
        "02_multi_gpu/run_multi_gpu_training.sh": (
            "#PBS -q lecture\n#PBS -l select=1:ngpus=2\n#PBS -W group_list=gt00\n#PBS -N multi_gpu\n"
        ),
        "02_multi_gpu/run_multi_gpu_profile.sh": "#PBS -N multi_gpu_profile\n",
        "02_multi_gpu/run_own_profile.sh": "#PBS -l select=1\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    requests = ("-q", "lecture", "-l", "select=1:ngpus=2", "-W", "group_list=gt00")
    profiled_runs.start(tmp_path / "02_multi_gpu", "run_multi_gpu_profile.sh", TRACK="chainer")
    profiled_runs.start(tmp_path / "02_multi_gpu", "run_own_profile.sh", TRACK="chainer")
    assert submitted == [(*requests, "-j", "oe", "run_multi_gpu_profile.sh"), ("-j", "oe", "run_own_profile.sh")]


def test_requests_that_cannot_be_read_are_named_in_a_sentence(tmp_path):
    (tmp_path / "run_single_gpu_training.sh").write_text("#PBS -l select='1\n")
    (tmp_path / "run_single_gpu_profile.sh").write_text("#PBS -N single_gpu_profile\n")
    with pytest.raises(
        JobFailed, match="run_single_gpu_training.sh has a directive error: -l select='1: close its quotation marks"
    ):
        profiled_runs.start(tmp_path, "run_single_gpu_profile.sh")


def test_a_job_that_recorded_nothing_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(profiled_runs, "follow", lambda job: None)
    with pytest.raises(ResultError, match=f"job 7.host has left no results in {tmp_path}/results: look at its output"):
        profiled_runs.of_job(tmp_path, "7.host")


def test_devices_are_watched_from_when_the_job_runs_and_line_by_line(monkeypatch, capsys):
    waited = []
    monkeypatch.setattr(profiled_runs, "wait_until_it_runs", waited.append)
    profiled_runs.watch("12", interval=0.1, count=2)
    out = capsys.readouterr().out
    assert waited == ["12"] and out.count("utilisation") == 2 and "\033" not in out


def test_the_clock_of_the_script_with_files_runs_while_images_are_prepared():
    """Else its gain would be flattered: what was loaded in every epoch would be loaded before the clock starts."""
    lines = given_out("exercises/04_profiling/pytorch/slow_loading.py")
    start = next(number for number, line in enumerate(lines.lines) if "start = time.perf_counter()" in line)
    assert start < lines.gap("loader").first
