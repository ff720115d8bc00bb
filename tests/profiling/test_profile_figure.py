"""What `timeline` and `explain` leave: the figure with all runs at one scale, and a Chrome trace with everything in
it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import made_profiles as made
import pytest
from waiting import run_to_end

from handson.profiling import analysis, explain, figure, perfetto, readers, report


def steps(rank, length, host="a", **options):
    events = []
    for number in range(5):
        at = length * number
        events += [
            made.step(number, at, at + length),
            ("loading", at, at + 2),
            ("compute", at + 2, at + 0.7 * length - 4 * rank),
        ]
        events += [("communication", at + 0.7 * length - 4 * rank, at + 0.9 * length)]
    return made.timeline(rank, events, host=host, **options)


@pytest.fixture
def runs():
    return [made.run(steps(0, 50), name="one"), made.run(steps(0, 80), steps(1, 80), name="two")]


def test_timelines_stand_one_above_the_other_at_one_scale(runs):
    one, two = figure.timeline(runs, steps=2).axes
    assert one.get_xlim() == two.get_xlim() and one.get_xlim()[1] == pytest.approx(160, rel=0.01)
    assert one.get_xlabel() == two.get_xlabel() == "time [ms]"
    assert [label.get_text() for label in two.get_yticklabels()] == [
        "rank 0 device",
        "rank 0 comm.",
        "rank 1 device",
        "rank 1 comm.",
    ]
    assert two.get_title(loc="left").startswith("two: ")
    assert max(path.get_extents().x1 for bars in one.collections for path in bars.get_paths()) < 101


def test_runs_are_named_in_words_unless_two_would_have_the_same(runs):
    runs[0].name, runs[1].name = "single_gpu_pytorch_profile_15", "slow_loading_before"
    assert figure.names(runs) == ["single GPU", "slow loading before"]
    runs[1].name = "single_gpu_pytorch_profile_16"
    assert figure.names(runs) == [run.name for run in runs]


def test_the_use_of_devices_is_drawn_below(runs):
    begin = made.HOUR / 1e9 - 1
    device = {"name": "core 0", "utilisation": [97.0, 50.0, 0.0], "memory": [2**20 * 7] * 3, "energy": None}
    runs[0].usage = {"begin": begin, "interval": 1.0, "devices": [device, device | {"name": "core 1"}]}
    *_, busy, memory = figure.timeline(runs).axes
    assert busy.lines[0].get_xydata().tolist() == [[1, 97], [2, 50], [3, 0]]
    assert memory.lines[0].get_ydata().tolist() == [7, 7, 7]
    assert (busy.get_ylabel(), memory.get_ylabel()) == ("utilisation [%]", "memory [MiB]")
    assert "core 1" in [text.get_text() for text in busy.get_legend().get_texts()]


def test_the_figure_says_in_words_what_it_shows(runs, tmp_path):
    png, svg = figure.figure(runs, tmp_path / "a.png")
    assert png.stat().st_size > 5000 and f"two: {analysis.verdict(runs[1]).sentence}." in svg.read_text()


def test_a_chrome_trace_of_all_runs_has_every_event_once(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(perfetto, "AT_ONCE", 7)
    perfetto.write(runs, tmp_path / "all.json")
    events = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == sum(len(one) for run in runs for one in run.timelines)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    threads = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    assert len({thread for _, thread in threads}) == len(threads) and 0 not in dict(threads).values()
    assert names == {1: "one, rank 0", 2: "two, rank 0", 3: "two, rank 1"}
    [first] = [event for event in events if event["pid"] == 3 and event["name"] == "ProfilerStep#1"]
    assert (first["ts"], first["dur"], first["cat"]) == (80_000, 80_000, "step")
    timeline = readers.read(tmp_path / "all.json")[0]
    assert len(timeline) and timeline.count(figure.analysis.COMPUTE)


def test_the_bars_of_an_explanation_add_up(runs):
    explanation = explain.split(*runs)
    drawn, (shorter, longer) = explain.draw(explanation).axes[0], (1000 * seconds for seconds in explanation.steps)
    assert [bar.get_width() for bar in drawn.patches[:2]] == pytest.approx([shorter, shorter])
    widths = [max(0, longer * share) for share in explanation.causes.values()]
    assert [bar.get_width() for bar in drawn.patches[2:]] == pytest.approx(widths)
    assert [label.get_text() for label in drawn.get_yticklabels()] == ["a step of 1 worker", "a step of 2 workers"]


def test_a_gain_is_drawn_back_over_the_losses_so_that_the_bar_ends_at_the_measured_step():
    causes = {"communication": 0.3, "contention": -0.1, "overhead": 0.2}
    drawn = explain.draw(explain.Explanation((1, 2), (5, 5), (0.06, 0.1), causes, None, [])).axes[0]
    gain = drawn.patches[-1]
    assert (gain.get_x(), gain.get_x() + gain.get_width()) == pytest.approx((100, 110))


def command(*words, cwd):
    return run_to_end([sys.executable, "-m", "handson", *map(str, words)], cwd=cwd)


def trace(path, rank, compute):
    events = [("user_annotation", f"ProfilerStep#{n}", 1000 * n, 1000) for n in range(3)]
    events += [("cpu_op", "aten::mm", 1000 * n, compute) for n in range(3)] + [
        ("user_annotation", "gloo:all_reduce", 1000 * n + compute, 950 - compute) for n in range(3)
    ]
    return made.chrome_trace(path, events, distributedInfo={"rank": rank, "world_size": 2}, host_name="a")


@pytest.mark.thorough
def test_the_command_tells_draws_and_exports(tmp_path):
    (tmp_path / "two").mkdir()
    for rank, compute in (0, 900), (1, 500):
        trace(tmp_path / f"two/rank{rank}.json", rank, compute)
    done = command("timeline", "two", "-o", "figure.png", "--export", "all.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "two: 2 ranks, 18 events, by torch.profiler" in done.stdout
    assert "Verdict: rank 1 waits 40 % of each step for rank 0: computation." in done.stdout
    assert {"figure.png", "figure.svg", "all.json"} <= set(os.listdir(tmp_path))


def test_the_timeline_goes_beside_the_last_run_s_profiles(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    trace(tmp_path / "run/rank0.json", 0, 900)
    trace(tmp_path / "run/rank1.json", 1, 500)
    monkeypatch.chdir(tmp_path)
    report.report([Path("run")], say=lambda line: None)
    assert Path("run/timeline.png").exists() and not list(tmp_path.glob("*.png"))


def test_reading_and_telling_need_no_torch(tmp_path):
    trace(tmp_path / "rank0.json", 0, 900)
    trace(tmp_path / "rank1.json", 1, 500)
    code = (
        "import sys; from handson.profiling import readers, report, explain, watch, figure;"
        " report.text(readers.load([sys.argv[1]])[0]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path], timeout=60).returncode == 0


@pytest.mark.parametrize(
    "words", [["timeline", "missing"], ["explain", "missing", "missing"], ["watch", "-o", "/proc/nowhere/x"]]
)
def test_a_mistake_is_one_sentence(tmp_path, words):
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith(f"handson {words[0]}: ") and done.stderr.count("\n") == 1
