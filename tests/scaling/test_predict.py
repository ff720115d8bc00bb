"""``python -m handson predict``: a table, sentences and a figure within two seconds, and one sentence for what cannot
be."""

import json
import re
import subprocess
import sys

import numpy
import pytest
from made_results import result
from typer.testing import CliRunner

from handson import figures
from handson.__main__ import app
from handson.errors import OneSentence
from handson.scaling import measured_runs, predict, rehearse
from handson.scaling.model import fit
from handson.scaling.model import predict as model_of
from handson.scaling.slowest_worker import expected_maximum
from handson.training.results import write

CLI = CliRunner()


def a_run(folder, workers, **changes):
    """The folder of a run whose result.json has measured steps."""
    random = numpy.random.default_rng(workers)
    steps = (0.05 + 0.01 * random.gamma(2, 0.5, (120, workers)).max(axis=1) + 0.01 * (workers > 1)).round(6).tolist()
    images = 120 * 32 * workers
    log = [{"epoch": epoch, "validation/main/accuracy": 0.3 + 0.3 * epoch - 0.01 * workers} for epoch in (1, 2)]
    fields = dict(nodes=workers, epochs=2, images=images, seconds=sum(steps) + 0.2, train_seconds=sum(steps))
    fields |= dict(steps=steps, parameters=72_000, log=log) | changes
    write(result(**{"unit": "multi_node", "workers": workers} | fields), folder / f"run{workers}")
    return folder / f"run{workers}"


def predicted(folders, *words):
    """What a command that is to succeed prints."""
    out = ["-o", str(folders[0].parent / "f.png")]
    return CLI.invoke(app, ["predict", *map(str, folders), *words, *out], catch_exceptions=False).output


def sentence(folder, *words):
    """The error of a command that is not to succeed."""
    done = CLI.invoke(app, ["predict", *map(str, words), "-o", str(folder / "figure.png")])
    assert isinstance(done.exception, OneSentence) and not done.output, done.output
    return str(done.exception)


@pytest.mark.thorough
def test_the_command_prints_a_band_for_512_workers_and_draws_it_without_torch(tmp_path):
    folders = [a_run(tmp_path, workers) for workers in (1, 2, 4)]
    words = [
        "predict",
        *map(str, folders),
        *"--network 25gbit --per-node 4 --workers 1,4,...,512 -o".split(),
        str(tmp_path / "figure.png"),
    ]
    program = (
        f"import sys; sys.argv[1:] = {words!r}\nfrom handson.__main__ import app\napp(standalone_mode=False)\nassert"
        " 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r" +\d+ +\d+ +[\d.]+ ", line)]
    assert [(int(row[0]), int(row[1])) for row in rows] == [(1, 1), *((4 * 2**k, 2**k) for k in range(8))]
    rate, low, high = float(rows[-1][3]), float(rows[-1][4]), float(rows[-1][6])
    # 512 workers of 32 images; the slowest of them takes more than 70 ms
    assert 10_000 < low <= rate <= high < 512 * 32 / 0.07
    assert "An efficiency of 0.8 holds up to" in done.stdout
    assert re.search(r"Node-hours for a million images: [\d.]+ with 1 worker, [\d.]+ with 512 workers", done.stdout)
    assert (tmp_path / "figure.png").stat().st_size > 10_000 and (tmp_path / "figure.svg").exists()


def rows(output):
    """{workers: the numbers of a row} of the table that predict prints."""
    found = [
        re.findall(r"-?[\d.]+", line)
        for line in output.splitlines()
        if re.match(r" +\d+ +\d+ +[\d.]+  +[\d.]+  +[\d.]+ to ", line)
    ]
    return {int(row[0]): [float(number) for number in row[1:]] for row in found}


@pytest.mark.thorough
def test_every_option_changes_what_it_names(tmp_path):
    folders = [str(a_run(tmp_path, workers)) for workers in (1, 2, 4)]
    base = ["predict", *folders, "--network", "10mbit", "--workers", "1,64", "-o", str(tmp_path / "f.png")]
    steps = {}
    for options, words in (
        ("", "ring all-reduce of 0.288 MB (float32), network 10mbit, 1 worker a node, batch 32 per worker"),
        ("--per-node 4", "4 workers a node"),
        ("--per-node 4 --algorithm tree", "tree all-reduce"),
        ("--per-node 4 --algorithm hierarchical", "hierarchical all-reduce"),
        ("--dtype float16", "0.144 MB (float16)"),
        ("--double-buffering", "double buffering"),
        ("--batchsize 64", "batch 64 per worker"),
    ):
        done = CLI.invoke(app, [*base, "--latency", "0", *options.split()], catch_exceptions=False)
        assert words in done.output, options
        _, steps[options], rate, *_ = rows(done.output)[64]
        images = 64 * (64 if "64" in options else 32)
        assert rate == pytest.approx(1000 * images / steps[options], rel=0.02), (
            "images/s follow from the step, but for the evaluation"
        )
    once = 1000 * 4 * 72_000 / (10e6 / 8 * 1448 / 1514)  # ms in which a node's network carries the gradients
    assert steps[""] - steps["--dtype float16"] == pytest.approx(once * 63 / 64, rel=0.01)
    assert steps[""] - steps["--double-buffering"] == pytest.approx(60, abs=5), (
        "ms of computation that hide communication"
    )
    slowest = 1000 * expected_maximum(json.loads((tmp_path / "run1/result.json").read_text())["steps"], 64)
    assert steps["--batchsize 64"] - steps[""] == pytest.approx(slowest, rel=0.03), (
        "ms: the slowest of 64 computes twice as long"
    )
    tree, hierarchical = steps["--per-node 4 --algorithm tree"], steps["--per-node 4 --algorithm hierarchical"]
    assert tree - hierarchical == pytest.approx((8 - 2 * 15 / 16) * once, rel=0.05), (
        "four rounds of all bytes there and back; a ring of 16 nodes"
    )
    assert steps["--per-node 4"] == pytest.approx(steps[""], rel=0.01), "one rank of each node sends to another node"


def test_evaluation_counts_and_is_shared_by_all_workers(tmp_path):
    train_seconds = json.loads((a_run(tmp_path, 1) / "result.json").read_text())["train_seconds"]
    # 3 s after each of two epochs
    found, _, _ = measured_runs.read([a_run(tmp_path, 1, seconds=train_seconds + 6.0), a_run(tmp_path, 2)])
    fitted = fit(found)
    for workers in (1, 8):
        predicted = model_of(fitted, workers)
        assert predicted.evaluation * found[0].images / predicted.batch * workers == pytest.approx(3.0)
    assert numpy.median(model_of(fitted, 1).throughput) == pytest.approx(found[0].result.throughput, rel=0.02)


@pytest.mark.thorough
def test_a_slow_network_is_named_as_the_limit_and_a_fast_one_is_not(tmp_path):
    folders = [a_run(tmp_path, workers) for workers in (1, 2)]
    fast = predicted(folders, *"--network 100gbit --latency 1 --workers 1,2".split())
    assert "Up to 4,096 workers, communication takes less time than computation" in fast
    slow = predicted(folders, *"--network 5mbit --workers 1,2".split())
    assert "The network is the bottleneck from about 2 workers on" in slow


def test_runs_on_one_node_say_nothing_of_a_network(tmp_path):
    folders = [a_run(tmp_path, 1), a_run(tmp_path, 2, nodes=1)]
    said = predicted(folders, *"--network 5mbit --per-node 1 --workers 1,2".split())
    assert "All these runs were on one node" in said and "The network is the bottleneck" not in said
    assert "Communication takes longer than computation from about 2 workers on, if" in said
    assert "The network is the bottleneck" in predicted(folders, *"--network 5mbit --per-node 1 --latency 9".split())


def test_disturbed_runs_are_named_before_what_is_predicted(tmp_path):
    node = {"name": "node1", "cores": 2, "seconds": 10.0, "used": 10.0, "others": 8.0}
    usage = {"begin": 0.0, "interval": 1.0, "devices": [], "nodes": [node]}
    lines = predicted([a_run(tmp_path, 1), a_run(tmp_path, 2, usage=usage)], "--workers", "1,2").splitlines()
    assert "40 % of the cores" in lines[0] and any(line.startswith("Predicted:") for line in lines[2:])


@pytest.mark.parametrize("limits", [(200, 420), (100, 3000), (1, 10**6)])
def test_a_logarithmic_axis_has_numbers_enough_to_read_points_off(limits):
    _, axes = figures.axes()
    axes.set(yscale="log", ylim=limits)
    figures.numbers_of_log_axis(axes)
    assert 3 <= sum(limits[0] <= tick <= limits[1] for tick in axes.get_yticks()) <= 9


@pytest.mark.thorough
def test_the_time_to_an_accuracy_counts_the_price_of_a_bigger_batch(tmp_path):
    folders = [a_run(tmp_path, 1), a_run(tmp_path, 2, log=[{"epoch": 2, "validation/main/accuracy": 0.9}])]
    words = ["predict", *map(str, folders), "--accuracy", "0.85", "--workers", "1,64", "-o", str(tmp_path / "f.png")]
    done = CLI.invoke(app, words, catch_exceptions=False)
    [one, many] = [line.split() for line in done.output.splitlines() if re.match(r" +\d+ +\d+ +\d+  ", line)]
    assert int(many[1]) == 64 * int(one[1]) and int(many[2]) > 10 * int(one[2])  # images
    assert "the critical batch is" in done.output
    late = CLI.invoke(app, [*words, "--start-up", "10000"], catch_exceptions=False)
    [_, begun] = [line.split() for line in late.output.splitlines() if re.match(r" +\d+ +\d+ +\d+  ", line)]
    assert float(begun[3]) == pytest.approx(float(many[3]) + 10_000, rel=0.01)
    assert float(begun[-1]) == pytest.approx(64 * float(begun[3]) / 3600, rel=0.01)
    assert "in none of the runs" in sentence(tmp_path, *folders, "--accuracy", "0.999")
    assert "From 64 workers on, a step takes more images than the data set has (1,920)" in done.output
    alike = [
        a_run(tmp_path, 1, log=[{"epoch": 1, "validation/main/accuracy": 0.9}]),
        a_run(tmp_path, 2, log=[{"epoch": 1, "validation/main/accuracy": 0.9}], images=3841),
    ]
    done = CLI.invoke(
        app,
        ["predict", *map(str, alike), "--accuracy", "0.85", "--workers", "1", "-o", str(tmp_path / "f.png")],
        catch_exceptions=False,
    )
    assert "bigger batches needed no more images in these runs" in done.output and "critical" not in done.output, (
        "no batch of 10^25 images"
    )
    assert f"give them as {tmp_path}/*" in sentence(tmp_path, tmp_path)


def test_numbers_of_workers():
    assert predict.numbers("1,2,4,...,512") == [2**k for k in range(10)]
    assert predict.numbers("1, 3,...,20") == [1, 3, 6, 12, 20]
    assert predict.numbers("8,4,...,1") == [1, 2, 4, 8]
    for wrong in ("0", "1,x", "5000", "", "1,-2", "1.5"):
        with pytest.raises(OneSentence, match="whole numbers from 1 to 4,096"):
            predict.numbers(wrong)


def test_what_cannot_be_is_refused_with_one_sentence(tmp_path):
    one, two = a_run(tmp_path, 1), a_run(tmp_path, 2)
    assert "only one run" in sentence(tmp_path, one) and "run_multi_gpu_training.sh" in sentence(tmp_path, one)
    assert "run_single_gpu_training.sh" in sentence(tmp_path, two)
    other = a_run(tmp_path / "other", 2, size=32)
    differ = sentence(tmp_path, one, other)
    assert "differ in image size (256 px; 32 px)" in differ
    assert "run_multi_gpu_training.sh" in differ
    assert "with the same options" in differ
    assert "the tracks chainer and pytorch" in sentence(tmp_path, one, a_run(tmp_path / "track", 2, track="chainer"))
    assert "72,000 and 80,000 parameters" in sentence(tmp_path, one, a_run(tmp_path / "net", 2, parameters=80_000))
    (tmp_path / "failed").mkdir()
    assert "give the output directory of a run that has ended well" in sentence(tmp_path, one, tmp_path / "failed")
    assert "carries nothing: give a rate above 0" in sentence(tmp_path, one, two, "--network", "0gbit")
    assert "is not a rate" in sentence(tmp_path, one, two, "--network", "fast")
    assert "6 workers do not fill nodes of 4: give 4 or 8" in sentence(
        tmp_path, one, two, "--per-node", "4", "--workers", "6"
    )
    assert "carries nothing: give a rate above 0" in sentence(
        tmp_path, one, a_run(tmp_path / "cut", 2, network="0mbit")
    )
    uneven = sentence(tmp_path, one, a_run(tmp_path / "uneven", 3, nodes=2))
    assert "3 workers on 2 nodes, so one node has more than another: repeat the run" in uneven
    assert "run_multi_node_training.sh" in uneven
    unknown = [a_run(tmp_path / "old", workers, parameters=None) for workers in (1, 2)]
    assert "give --parameters" in sentence(tmp_path, *unknown)
    (tmp_path / "network.json").write_text("{}")
    assert "is not a measurement of a network" in sentence(tmp_path, one, two, tmp_path / "network.json")


def profiles(folder, communicate):
    """Write the traces of two ranks: three steps of 90 ms, of which an all-reduce takes 20 ms; half of it is hidden."""
    for rank in (0, 1):
        events = [
            event
            for step in range(3)
            for event in (
                ("user_annotation", f"ProfilerStep#{step}", 100 * step, 90),
                ("cpu_op", "aten::mm", 100 * step, 60),
                *([("user_annotation", "gloo:all_reduce", 100 * step + 50, 20)] if communicate else []),
            )
        ]
        trace = [
            {"ph": "X", "cat": kind, "name": name, "ts": 1000.0 * begin, "dur": 1000.0 * length, "pid": rank}
            | {"tid": 2 if "gloo" in name else 1}
            for kind, name, begin, length in events
        ]
        (folder / f"rank{rank}.json").write_text(
            json.dumps({"traceEvents": trace, "distributedInfo": {"rank": rank, "world_size": 2, "backend": "gloo"}})
        )
    return folder


def test_a_profile_in_which_a_rank_is_missing_is_refused(tmp_path):
    folder = profiles(a_run(tmp_path, 2, profiled=True), communicate=True)
    (folder / "rank1.json").unlink()
    assert "are of 1 of 2 ranks, so a rank has failed: record the run again" in sentence(tmp_path, folder)


def test_profiles_without_communication_are_refused(tmp_path):
    assert "are of 2 ranks and have no communication: record" in sentence(
        tmp_path, profiles(tmp_path, communicate=False)
    )
    assert "do not contain what was trained" in sentence(tmp_path, profiles(tmp_path, communicate=True))


def test_a_profile_gives_the_steps_and_whether_communication_overlaps(tmp_path):
    folder = profiles(a_run(tmp_path, 2, profiled=True, script="train_own", unit=""), communicate=True)
    [[run], _, _] = measured_runs.read([folder])
    assert run.workers == 2 and list(run.steps) == pytest.approx([0.09] * 3) and run.overlap


def test_workers_that_share_cores_are_left_out_and_named(tmp_path):
    folders = [a_run(tmp_path, 1), a_run(tmp_path, 2), a_run(tmp_path, 4, device="4 virtual GPUs sharing 2 cores")]
    found, _, remarks = measured_runs.read(folders)
    assert [run.workers for run in found] == [1, 2] and "4 workers share cores" in remarks[-1]


def test_what_is_no_run_is_left_out_and_named(tmp_path):
    """As `results/*` gives them after the unit on several GPUs: stacks of a hang, and a failed run."""
    folders = [a_run(tmp_path, 1), a_run(tmp_path, 2)]
    (tmp_path / "stack_of_rank_0.txt").write_text("Timeout\n")
    (tmp_path / "failed").mkdir()
    paths = [*folders, tmp_path / "stack_of_rank_0.txt", tmp_path / "failed", tmp_path / "none/*", a_run(tmp_path, 8)]
    found, _, remarks = measured_runs.read(paths)
    assert [run.workers for run in found] == [1, 2, 8]
    assert all(name in remarks[0] for name in ("stack_of_rank_0.txt", "failed", "none/*"))
    assert "stack_of_rank_0.txt" in predicted(paths)
    assert "not the JSON of a run" in sentence(tmp_path, tmp_path / "stack_of_rank_0.txt"), "nothing else is there"


def test_the_figure_goes_into_the_folder_of_the_run_with_most_workers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["predict", *map(str, (a_run(tmp_path, 2), a_run(tmp_path, 1))), "--workers", "1,2"]
    CLI.invoke(app, words, catch_exceptions=False)
    assert (tmp_path / "run2/prediction.png").exists() and not list(tmp_path.glob("*.png"))


def test_profiled_runs_are_left_out_beside_others(tmp_path):
    profiled = profiles(a_run(tmp_path, 2, profiled=True), communicate=True).rename(tmp_path / "profile")
    found, _, remarks = measured_runs.read([a_run(tmp_path, 1), a_run(tmp_path, 2), profiled])
    assert [run.result.profiled for run in found] == [False, False] and "profile is left out" in remarks[0]


def test_rehearsals_on_cores_are_used_with_the_run_on_a_gpu_that_they_repeat(tmp_path):
    one = a_run(tmp_path, 1, device="1 GPU (Example)")
    rehearsals = [
        a_run(tmp_path, workers, device=f"{workers} virtual GPUs: processes", script=measured_runs.REHEARSAL)
        for workers in (2, 4)
    ]
    single, several = measured_runs.check(measured_runs.read([one, *rehearsals])[0])
    assert (len(single), len(several)) == (1, 2)


def test_each_rank_of_a_rehearsal_sleeps_for_other_measured_steps(tmp_path):
    run = measured_runs.read([a_run(tmp_path, 1)])[0][0].result
    own = [rehearse.schedule(run, 50, rank) for rank in (0, 1)]
    assert set(own[0]) | set(own[1]) <= set(run.steps) and list(own[0]) != list(own[1])
    with pytest.raises(OneSentence, match="has 2 workers, and the ranks sleep for the steps of one worker"):
        rehearse.schedule(measured_runs.read([a_run(tmp_path, 2)])[0][0].result, 5, 0)
