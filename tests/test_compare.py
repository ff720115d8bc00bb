"""Comparing runs: the table's figures, what must not be compared, and the figure."""

import contextlib
import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock
from xml.etree import ElementTree

import matplotlib.image
import pytest
from made_results import result

import handson.__main__
from handson.compare import disturbed, draw, figure, impossible, shared_cores, table, text
from handson.training.results import write

LECTURE = {1: 51.12377404072687, 2: 87.6300597715253, 4: 172.12098418175134}  # workers -> images/s


def a_run(unit="single_gpu", workers=1, nodes=1, rate=100.0, track="pytorch", loss=0.5, accuracy=0.75, **changes):
    """The result of a run at `rate` images/s."""
    log = [{"validation/main/loss": 9.0, "validation/main/accuracy": 0.1}]
    log += [{"validation/main/loss": loss, "validation/main/accuracy": accuracy}]
    fields = dict(track=track, device="virtual GPU 0", epochs=4, images=6000, log=log) | changes
    return result(unit, workers, 6000 / rate, nodes=nodes, **fields)


def lecture():
    tasks = {1: ("single_gpu", 1), 2: ("multi_gpu", 1), 4: ("multi_node", 2)}
    return [a_run(*(tasks[workers][0], workers, tasks[workers][1]), rate) for workers, rate in LECTURE.items()]


def words(line):
    return line.replace(" ± ", "±").replace(" x ", "x").replace(" (", "(").split()


def test_speedup_and_efficiency_of_the_lecture():
    rows = table(lecture())
    assert [row.name for row in rows] == ["single_gpu", "multi_gpu", "multi_node"]
    assert [round(row.speedup, 2) for row in rows] == [1.00, 1.71, 3.37]
    assert [round(row.efficiency, 3) for row in rows] == [1.000, 0.857, 0.842]


def test_the_table_reads_in_a_job_output_file():
    conditions, headings, rule, *lines = text(table(lecture()))
    assert conditions == "Conditions: digits, 256 px, batch 32 per worker, 4 epochs, virtual GPUs"
    assert words(lines[2]) == ["multi_node", "pytorch", "4(2x2)", "1", "172.1", "3.37", "0.842", "0.5000", "0.7500"]
    assert len({len(line) for line in [headings, rule, *lines]}) == 1
    assert headings.index("images/s") + len("images/s") == lines[0].index("51.1") + len("51.1")


def test_workers_that_share_cores_are_named():
    shared = a_run("multi_node", 4, 2, device="4 virtual GPUs: processes with one thread each, sharing 2 cores equally")
    assert shared_cores([a_run(), shared, shared]) == [
        "The 4 workers of multi_node share 2 cores here: a speed-up of 2 is the most they can reach."
    ]
    assert shared_cores(lecture()) == []


def test_repeats_become_one_row_with_median_and_standard_deviation():
    rows = table([a_run(rate=90, loss=0.4), a_run(rate=100, loss=0.5), a_run(rate=110, loss=0.6)])
    assert len(rows) == 1
    assert (rows[0].throughput, rows[0].spread, rows[0].loss) == pytest.approx((100, 10, 0.5))
    assert words(text(rows)[3])[3:5] == ["3", "100.0±10.0"]


def test_the_speedup_is_over_the_median_of_the_single_runs():
    rows = table([a_run(rate=90), a_run(rate=110), a_run("multi_gpu", 2, rate=150)])
    assert rows[1].speedup == pytest.approx(1.5)


def test_of_several_methods_on_one_worker_the_plain_one_is_the_baseline_and_a_faster_one_is_possible():
    methods = [
        a_run("multi_gpu", 1, rate=rate, communicator=method)
        for method, rate in (("checkpoint", 50), ("plain", 100), ("zero", 130))
    ]
    assert [row.speedup for row in table(methods)] == pytest.approx([0.5, 1, 1.3]) and impossible(methods) == []


def test_each_track_is_measured_against_its_own_single_run():
    runs = [a_run(rate=100), a_run("multi_gpu", 2, rate=150)]
    runs += [a_run(track="chainer", rate=50), a_run("multi_gpu", 2, track="chainer", rate=90)]
    rows = table(runs)
    assert [(row.track, row.name) for row in rows] == [
        (t, k) for t in ("pytorch", "chainer") for k in ("single_gpu", "multi_gpu")
    ]
    assert [row.speedup for row in rows] == pytest.approx([1, 1.5, 1, 1.8])


def test_tasks_and_nodes_with_equally_many_workers_stay_apart():
    rows = table([a_run("multi_gpu", 2), a_run("multi_node", 2), a_run("multi_node", 2, nodes=2)])
    assert [(row.name, row.nodes) for row in rows] == [("multi_gpu", 1), ("multi_node", 1), ("multi_node", 2)]


def test_scripts_of_one_system_with_equally_many_workers_have_a_line_each_from_one_worker():
    given = {"unit": "frameworks", "track": "tensorflow"}
    scripts = [("single_gpu", 1, 100), ("mirrored", 2, 150), ("multi_worker", 2, 120)]
    left = draw(
        [a_run(script=f"train_cifar_{name}", workers=workers, rate=rate, **given) for name, workers, rate in scripts]
    )[0].axes[0]
    lines = {tuple(map(float, line.get_ydata())) for line in left.get_lines() if line.get_linestyle() != "None"}
    assert {(100.0, 150.0), (100.0, 120.0)} <= lines
    assert {"TensorFlow, mirrored", "TensorFlow, multi worker"} <= {
        name.get_text() for name in left.get_legend().get_texts()
    }


def test_without_a_single_run_the_table_says_why_there_is_no_speedup():
    lines = text(table([a_run("multi_gpu", 2), a_run(track="chainer"), a_run("multi_gpu", 2, track="chainer")]))
    assert words(lines[3])[5:7] == ["-", "-"] and words(lines[5])[5] == "1.00"
    assert (
        lines[-1] == "There is no speed-up without a single-GPU run under the same conditions (track pytorch): add it."
    )


@pytest.mark.parametrize(
    "name, change",
    [
        ("data set", {"dataset": "CIFAR10"}),
        ("image size", {"size": 64}),
        ("kind of GPU", {"device": "GPU 0 (NVIDIA H200)"}),
        ("learning rate", {"lr": 0.5}),
    ],
)
def test_runs_under_different_conditions_are_kept_apart_with_a_warning(name, change):
    rows = table([a_run(rate=100), a_run(rate=300, **change), a_run("multi_gpu", 2, rate=150)])
    assert sorted(row.throughput for row in rows) == pytest.approx([100, 150, 300])
    assert [row.speedup for row in rows if row.name == "multi_gpu"] == pytest.approx([1.5])
    lines = text(rows)
    assert lines[-1] == f"Warning: the runs differ in {name}: compare only those under the same conditions."
    assert len({line[lines[1].index("conditions") :] for line in lines[3:6]}) == 2


def test_another_script_and_a_recording_are_shown_as_such_and_never_averaged_with_the_lectures():
    slow = a_run("profiling", 2, rate=50, script="uneven_work")
    rows = table(
        [
            a_run(),
            a_run("multi_gpu", 2, rate=180),
            slow,
            a_run("multi_gpu", 2, rate=170, profiled=True),
            a_run(rate=95, profiled=True),
        ]
    )
    assert [(row.name, row.throughput, row.speedup) for row in rows] == [
        ("single_gpu", pytest.approx(100), pytest.approx(1)),
        ("multi_gpu", pytest.approx(180), pytest.approx(1.8)),
        ("single_gpu", pytest.approx(95), pytest.approx(1)),
        ("multi_gpu", pytest.approx(170), pytest.approx(170 / 95)),
        ("uneven_work", pytest.approx(50), None),
    ]
    lines = text(rows)
    assert [line.rpartition("  ")[2] for line in lines[5:8]] == [
        "profiled",
        "profiled",
        "another script than the lecture's: uneven_work",
    ]
    assert "Warning: the runs differ in script and recording: compare only those under the same conditions." in lines
    assert text(table([slow]))[0].endswith("virtual GPUs, another script than the lecture's: uneven_work")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"network": "20mbit"}, "20mbit"),
        ({"communicator": "flat"}, "communicator flat"),
        ({"gradients": "float16"}, "float16 gradients"),
        ({"double_buffering": True}, "double buffering"),
        ({"device": "4 virtual GPUs: processes with one thread each, sharing 1 core equally"}, "sharing 1 core"),
    ],
)
def test_runs_that_communicate_in_another_way_have_a_row_of_their_own_with_the_same_baseline(change, words):
    usual = a_run("multi_node", 4, 2, rate=200, communicator="naive")
    rows = table([a_run(), usual, dataclasses.replace(usual, seconds=60.0, throughput=100.0, **change)])
    assert sorted((row.throughput, row.speedup) for row in rows) == [(100, 1), (100, 1), (200, 2)]
    lines = text(rows)
    assert sorted(line[lines[1].index("conditions") :].strip() for line in lines[3:6]) == ["", "", words]
    assert not any("Warning" in line for line in lines)


def test_a_speedup_that_cannot_be_is_questioned():
    shared = a_run(
        "multi_node", 4, 2, rate=373, device="4 virtual GPUs: processes with one thread each, sharing 2 cores equally"
    )
    [sentence] = impossible([a_run(), shared])
    assert sentence.startswith("The speed-up of multi_node (pytorch), 3.73, is more than 2 cores can reach. ")
    assert impossible([a_run(), a_run("multi_node", 4, 2, rate=373)]) == impossible(lecture()) == []
    assert "5.00, is more than 4 workers can reach" in impossible([a_run(), a_run("multi_node", 4, 2, rate=500)])[0]


NODE = {"name": "node1", "cores": 2, "seconds": 10.0, "used": 12.0, "others": 8.0}
USED = {"begin": 0.0, "interval": 1.0, "devices": [], "nodes": [NODE]}


def test_disturbed_runs_are_named_with_how_to_leave_them_out():
    first, last = disturbed([a_run(), a_run(usage=USED, folder="results/single_gpu_pytorch_7")])
    assert first == ("results/single_gpu_pytorch_7: other programs took 40 % of the cores of node1: repeat the run.")
    assert "To leave a run out, delete its folder, or move it out of `results`." in last
    assert disturbed(lecture()) == []
    assert "Other programs disturbed 1 more run." in disturbed([a_run(usage=USED)] * 6)
    assert "Other programs disturbed 2 more runs." in disturbed([a_run(usage=USED)] * 7)


def test_the_table_and_the_figure_mark_runs_that_others_disturbed(tmp_path):
    runs = [a_run(), a_run("multi_gpu", 2), a_run("multi_gpu", 2, usage=USED), a_run("multi_node", 4, 2, usage=USED)]
    lines = text(table(runs))
    assert [line[lines[1].index("conditions") :] for line in lines[3:6]] == ["", "1 of 2 disturbed", "disturbed"]
    sentence = "In 2 of 4 runs, other programs took up to 40 % of the cores of node1: repeat these runs"
    described, source = drawn(runs, tmp_path / "plot")
    assert sentence in described and source.count(sentence) == 2  # the description, and the text below
    assert source.count("disturbed by other programs") == 2
    assert "disturbed" not in drawn(runs[:2], tmp_path / "plot")[1]


def test_a_diverged_or_missing_validation_shows_as_unknown():
    for run in (a_run(loss=None, accuracy=None), a_run(log=[]), a_run(log=[{"epoch": 1}])):
        assert words(text(table([run, a_run()]))[3])[-2:] == ["-", "-"]


def drawn(results, path):
    """The SVG of a figure: its texts."""
    png, svg = figure(results, path)
    assert matplotlib.image.imread(png).std() > 0.01  # something is drawn
    return " ".join(ElementTree.parse(svg).getroot().itertext()), svg.read_text()


def test_the_figure_names_axes_with_units_and_every_line(tmp_path):
    runs = lecture() + [dataclasses.replace(run, track="chainer") for run in lecture()]
    source = drawn(runs, tmp_path / "plot")[1]
    for label in (
        "throughput [images/s]",
        "speed-up over one worker",
        "workers",
        "PyTorch",
        "Chainer",
        "ideal",
        "the lecture",
    ):
        assert label in source  # matplotlib writes each text beside its outlines


def axes_of(results, tmp_path, monkeypatch):
    """The two panels, as matplotlib has them."""
    kept = []
    monkeypatch.setattr("handson.compare.figures.save", lambda drawing, *others: kept.append(drawing))
    figure(results, tmp_path / "plot")
    return kept[0].axes


def points(axes, marker):
    return [
        sorted(zip(*line.get_data())) for line in axes.lines if line.get_marker() == marker and len(line.get_xdata())
    ]


def test_every_repeat_is_a_point_and_the_ideal_line_starts_at_their_mean(tmp_path, monkeypatch):
    runs = [a_run(rate=90), a_run(rate=110), a_run("multi_gpu", 2, rate=140), a_run("multi_gpu", 2, rate=160)]
    left, right = axes_of(runs, tmp_path, monkeypatch)
    assert points(left, "o")[0] == [pytest.approx(point) for point in [(1, 90), (1, 110), (2, 140), (2, 160)]]
    lines = [
        line.get_xydata().tolist() for line in left.lines if line.get_linestyle() == "--" and len(line.get_xdata())
    ]
    assert lines == [[[1, pytest.approx(100)], [2, pytest.approx(200)]]]
    assert points(right, "o")[0] == [(1, 1), (2, pytest.approx(1.5))]


@pytest.mark.parametrize(
    "runs", [[a_run()], [a_run(), a_run(size=64), a_run(track="other")], [a_run(dataset="$\\x$"), a_run(dataset="$}$")]]
)
def test_any_set_of_runs_can_be_drawn(tmp_path, runs):
    drawn(runs, tmp_path / "plot")


def command(*arguments, cwd):
    """``python -m handson compare`` in a process of its own."""
    path = os.pathsep.join([str(Path(handson.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"COLUMNS": "40", "PYTHONPATH": path}
    words = [sys.executable, "-m", "handson", "compare", *map(str, arguments)]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=60, env=environment)


def called(*arguments, cwd):
    """As `command`, in this process, which has loaded matplotlib already: it takes a second."""
    out, errors, status = io.StringIO(), io.StringIO(), 0
    with contextlib.ExitStack() as stack:
        for context in (
            contextlib.chdir(cwd),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(errors),
            mock.patch.dict(os.environ, COLUMNS="40"),
            mock.patch.object(sys, "argv", ["handson", "compare", *map(str, arguments)]),
            mock.patch("signal.signal"),
        ):
            stack.enter_context(context)
        try:
            handson.__main__.main()
        except SystemExit as end:
            status = end.code or 0
    return SimpleNamespace(returncode=status, stdout=out.getvalue(), stderr=errors.getvalue())


def test_runs_that_failed_or_go_on_are_left_out_and_named(tmp_path):
    outs = [write(run, tmp_path / "results" / str(number)).parent for number, run in enumerate(lecture())]
    (tmp_path / "results" / "failed").mkdir()
    (tmp_path / "results" / "stopped").mkdir()
    done = called("results/failed", "results/stopped", *outs, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    left_out, *others = done.stdout.splitlines()
    assert (
        left_out
        == "2 of 5 folders are left out, such as results/failed: they have no result.json, which a run writes when it"
        " ends well."
    )
    assert others[:-1] == text(table(lecture()))
    done = called("results/faild", *outs, cwd=tmp_path)
    assert done.returncode == 2 and "there is no results/faild" in done.stderr, (
        "a name that does not exist is a mistake"
    )


def test_the_figure_goes_into_the_folder_of_the_last_run_unless_an_option_says_where(tmp_path):
    outs = [write(run, tmp_path / "results" / str(number)).parent for number, run in enumerate(lecture())]
    (tmp_path / "here").mkdir()
    said = called(*outs, cwd=tmp_path / "here").stdout
    assert (outs[-1] / "throughput.png").exists() and str(outs[-1] / "throughput.svg") in said
    assert not list((tmp_path / "here").iterdir())
    called(*outs, "-o", "figure.png", cwd=tmp_path / "here")
    assert {path.name for path in (tmp_path / "here").iterdir()} == {"figure.png", "figure.svg"}


def test_results_of_an_older_version_are_left_out_and_named(tmp_path):
    out = write(a_run(), tmp_path / "new").parent
    old = dataclasses.asdict(a_run()) | {"task": "single_gpu"}
    del old["unit"], old["script"], old["profiled"]
    (tmp_path / "old").mkdir()
    (tmp_path / "old/result.json").write_text(json.dumps(old))
    done = called(out, tmp_path / "old", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    first, *others = done.stdout.splitlines()
    assert first.startswith(f"Left out: {tmp_path}/old/result.json was written by an older version of the course")
    assert others[:-1] == text(table([a_run()]))
    done = called(tmp_path / "old", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "older version of the course" in done.stderr


def test_a_directory_without_result_ends_with_one_sentence_and_status_2(tmp_path):
    done = called(tmp_path, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"handson compare: there is no {tmp_path}/result.json")
    assert done.stderr.count("\n") == 1


def test_the_commands_start_without_torch_numpy_or_matplotlib():
    code = "import sys, handson.__main__; print({'torch', 'numpy', 'matplotlib'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout == "set()\n"
