"""The notebooks' drawings and figures: pictures with words for people who cannot see them, which hold the numbers that
are drawn."""

from types import SimpleNamespace

import numpy
import pytest
from IPython.display import Image

from handson import figures, rings
from handson.notebook import attention_and_experts, communication, drawings, model_parallel, multi_gpu, runs, single_gpu
from handson.notebook.measure import Steps
from handson.notebook.multi_gpu import Curve, Plan
from handson.profiling.usage import Disturbance
from handson.training import data
from handson.training.gpu_memory import PARTS


def two_ranks():
    """Steps of 10 ms in which rank 0 waits 2 ms for rank 1, and both communicate 3 ms."""
    of_step = numpy.array([[0, 0, 0, 2, 4, 9, 10], [0, 0, 0, 3, 6, 9, 10]]) / 1000
    return Steps(numpy.stack([[moments + 0.010 * step for step in range(10)] for moments in of_step]), 32)


def a_curve(updates):
    moments = numpy.arange(1, updates + 1)
    return Curve(Plan(32, [0.1] * updates), moments, moments / 10, numpy.array([1 / moments, 0.8 / moments]))


SINGLE = Steps(numpy.array([[numpy.array([0, 0, 0, 2, 4, 4, 5]) / 1000 + 0.005 * step for step in range(10)]]), 32)
DISTURBANCE = Disturbance(0.4, "the cores of vm")
LOG = [
    {"main/loss": 2.0, "main/accuracy": 0.5},
    {"main/loss": 1.0, "main/accuracy": 0.75, "validation/main/accuracy": 0.625},
]


def a_run(throughput, disturbance=None, **row):
    log = [{"validation/main/accuracy": 0.5, "bytes": 2e6} | row]
    return [SimpleNamespace(throughput=throughput, log=log, disturbance=disturbance)]


def of_workers(workers, throughput):
    """A run whose workers share two cores, if they are more."""
    device = f"{workers} virtual GPUs, sharing 2 cores equally" if workers > 2 else f"on {workers} cores"
    return SimpleNamespace(
        track="chainer", workers=workers, throughput=throughput, device=device, disturbance=workers == 4 and DISTURBANCE
    )


def a_counted_run(megabytes):
    """A run of one epoch, 10 steps of 10 ms, on two ranks that have held so many MB of each part."""
    account = {"most": dict.fromkeys(PARTS, megabytes * 2**20), "peak": dict.fromkeys(PARTS, megabytes * 2**20)}
    return [
        SimpleNamespace(
            workers=2,
            batchsize=16,
            images=320,
            epochs=1,
            log=[{"epoch": 1, "elapsed_time": 0.1}],
            memory=[account] * 2,
            disturbance=None,
        )
    ]


WAYS = {
    "ranks": 2,
    "tokens": 8,
    "heads": 2,
    "width": 4,
    "rows": [
        {"way": way, "causal": causal, "seconds": 0.01, "computing": [0.002, 0.003], "bytes": 2**21, "sent": 2**20}
        for way in ("ring", "zigzag", "heads")
        for causal in (False, True)
    ],
}
PICTURES = {
    "work under a mask": (attention_and_experts.work_of_ranks, ({0: [0, 3], 1: [1, 2]}, len), "rank 0: chunks 0, 3 4"),
    "ways of attention": (
        attention_and_experts.ways,
        (WAYS, lambda *sizes: 2**20, lambda *sizes: 2**20),
        "zigzag 2.0 MiB (scores 1.0)",
    ),
    "computing": (attention_and_experts.computing, (WAYS,), "stretches: 2, 3; zigzag: 2, 3."),
    "divided matrices": (
        model_parallel.split_products,
        (3,),
        "divided among 3 ranks: query, key, value and up in columns",
    ),
    "a mesh": (
        model_parallel.steps,
        ({"tensor-inside": {800: 0.1, 160: 0.25}}, lambda name, rate: 40 / rate, 800),
        "0.25 s at 160 Mbit/s, 0.10 s at 800 Mbit/s",
    ),
    "data parallel": (drawings.data_parallel, (), "mean of their gradients"),
    "model parallel": (drawings.model_parallel, (), "activations"),
    "all-reduce": (drawings.all_reduce, (), "4 ranks"),
    "chunks": (
        drawings.chunks,
        ([[[1, 1], [1, 11], [11, 11]], [[10, 10], [11, 10], [11, 11]]],),
        "2 ranks before an all-reduce and after each of its 2 steps, with the ranks whose numbers are in them; at the"
        " end, 4 of 4",
    ),
    "ring by hand": (rings.picture, ([[0, 1, 2], [], [], []],), "Step 2 is still to be written"),
    "four steps": (drawings.four_steps, (), "all-reduce"),
    "nodes": (drawings.nodes, (2, 2), "intra_ranks begin at 0"),
    "parts": (single_gpu.parts_of_step, (SINGLE.seconds(),), "forward 2.0 ms, backward 2.0 ms, optimize 1.0 ms"),
    "parts and a prediction": (
        lambda seconds: single_gpu.parts_of_step(seconds, predicted=2.5),
        (SINGLE.seconds(),),
        "backward 2.0 ms, optimize 1.0 ms; predicted for backward 5.0 ms",
    ),
    "throughputs": (single_gpu.throughputs, ({1: 50, 2: 90},), "1: 50 images/s, 2: 90 images/s"),
    "epoch": (single_gpu.epoch, ({"load": 0.5, "forward": 1.5},), "load 0.50 s, forward 1.50 s"),
    "speed-up": (
        multi_gpu.speed_up,
        ([of_workers(1, 50), of_workers(2, 80), of_workers(4, 90)],),
        "2 workers 1.60, 4 workers 1.80; ideal: as many as workers; 2 cores allow 2. In 1 of 3 runs, other programs"
        " took 40 % of the cores of vm: repeat the run.",
    ),
    "ranks": (multi_gpu.ranks, (two_ranks(),), "2 ranks"),
    "steps": (
        multi_gpu.steps_compared,
        (SINGLE, two_ranks()),
        "rank 0: compute 5.0 ms, waiting 2.0 ms, communication 3.0 ms",
    ),
    "epochs and updates": (
        multi_gpu.equal_epochs_and_updates,
        ({"one": a_curve(20), "other": a_curve(10)}, 25),
        "one: 4.5 %, other: 9.0 %; predicted 25 %",
    ),
    "epochs and updates without a prediction": (
        multi_gpu.equal_epochs_and_updates,
        ({"one": a_curve(20), "other": a_curve(10)}, None),
        "one: 4.5 %, other: 9.0 %.",
    ),
    "rates": (multi_gpu.rates_and_errors, ({"one": a_curve(20)},), "one: 4.5 %"),
    "bars": (figures.bar_chart, ({"a": 1, "b": 2}, "size [m]", {"b": 3}), "a 1, b 2; predicted for b 3."),
    "ratios": (figures.bar_chart, ({"a": 1.0, "b": 1.5}, "speed-up", None, 1), "a 1, b 1.5"),
    "training": (runs.show, (SimpleNamespace(log=LOG),), "main/loss 1"),
    "buckets": (
        communication.buckets,
        ({"1-KB": a_run(50, DISTURBANCE), "one-bucket": a_run(90, DISTURBANCE), "torch-ddp": a_run(80)},),
        "1-KB 50 images/s, one-bucket 90 images/s, torch-ddp 80 images/s. In 2 of 3 runs, other programs took up to",
    ),
    "periods": (
        communication.periods,
        ({"local-sgd-1": a_run(1), "local-sgd-4": a_run(1), "block-momentum-4": a_run(1)}, lambda period: 2e6 / period),
        "block momentum 4: 0.500, 2.0 MB",
    ),
    "staleness": (
        communication.staleness,
        ({"asynchronous": a_run(1, **{"staleness 0": 1, "staleness 2": 3})},),
        "asynchronous: mean 1.50, largest 2.",
    ),
    "to an accuracy": (
        communication.to_accuracy,
        (
            {"plain": a_run(1, elapsed_time=3), "1-bit": a_run(1, elapsed_time=2)},
            0.5,
            {"plain": a_run(1, elapsed_time=1)},
        ),
        "plain 3.0 s, 1-bit 2.0 s",
    ),
    "accuracy against updates": (
        communication.accuracies,
        ({"stale": a_run(1), "alone": a_run(1)}, ["stale", "alone"], {"stale": 23, "alone": 7}),
        "stale 0.500, alone 0.500",
    ),
    "what the student expects": (
        communication.to_accuracy,
        ({"plain": a_run(1, elapsed_time=3)}, 0.5, None, 2),
        "plain 3.0 s",
    ),
    "all-reduces, disturbed": (
        communication.seconds_against_bytes,
        (
            {
                "ranks": 4,
                "rows": [{"algorithm": "ring", "bytes": size, "seconds": size / 1e6} for size in (64, 256)],
                "usage": {
                    "devices": [],
                    "nodes": [{"name": "vm", "cores": 2, "seconds": 10.0, "used": 4.0, "others": 8.0}],
                },
            },
        ),
        "other programs took 40 % of the cores of vm",
    ),
    "never there": (communication.to_accuracy, ({"plain": a_run(1, elapsed_time=3)}, 0.9), "plain never"),
    "memory and time": (
        model_parallel.bytes_and_time,
        ({"plain": a_counted_run(8), "checkpoint": a_counted_run(2)}, {"plain": 7e6}),
        "plain 8.0 MiB, 10 ms; checkpoint 2.0 MiB",
    ),
    "memory and ranks": (
        model_parallel.against_ranks,
        (
            {1: {"zero": a_counted_run(4)}, 2: {"zero": a_counted_run(3)}},
            {"zero": "zero"},
            lambda kind, ranks: 2e7 / ranks,
        ),
        "zero 12.0, 9.0 MiB, of which optimizer 4.0, 3.0 MiB.",
    ),
    "images": (single_gpu.images, (data.load_arrays("digits")[0],), "first 10 images"),
    "shards": (
        multi_gpu.classes_of_shards,
        ({"in order": [[0, 0], [1, 1]], "at random": [[0, 1], [1, 0]]},),
        "in order, at random",
    ),
}


def test_an_order_is_compared_pair_by_pair_and_who_never_is_there_comes_last(capsys):
    runs = {name: a_run(1, elapsed_time=seconds) for name, seconds in (("plain", 3), ("1-bit", 1), ("late", 2))}
    communication.order(runs | {"never": a_run(1, **{"validation/main/accuracy": 0.1})}, 0.5, "1-bit, plain never late")
    said = capsys.readouterr().out.splitlines()
    assert said[1:] == ["measured:  1-bit, late, plain, never", "4 of 6 pairs are in the right order."]


def test_an_order_that_nobody_predicted_is_not_compared(capsys):
    communication.order({"plain": a_run(1, elapsed_time=3)}, 0.5, None)
    assert not capsys.readouterr().out


def test_a_method_that_missed_the_accuracy_with_one_seed_is_not_ranked_first(capsys):
    (fast,) = a_run(1, elapsed_time=1)
    (missed,) = a_run(1, **{"validation/main/accuracy": 0.1})
    communication.order({"plain": a_run(1, elapsed_time=3), "1-bit": [fast, missed]}, 0.5, "1-bit plain")
    assert "measured:  plain, 1-bit" in capsys.readouterr().out


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_says_what_it_shows(name):
    draw, arguments, words = PICTURES[name]
    picture = draw(*arguments)
    assert isinstance(picture, Image) and picture.data.startswith(b"\x89PNG")
    assert words in picture.alt and picture.alt.endswith(".")
