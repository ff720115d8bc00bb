"""The memory of a GPU, but for the counting: its size in words, the files of ranks, the report, the sentences for what
is wrong."""

import json
import math
import os
import sys

import pytest
from waiting import run_to_end

from handson import memory
from handson.errors import GpuFull, in_a_sentence
from handson.sizes import bytes_of
from handson.training import gpu_memory
from handson.training.gpu_memory import OutOfMemory

HELD = {"parameters": 3 * 2**20, "gradients": 2**20, "optimizer": 2 * 2**20, "activations": 20 * 2**20}


def account(**changes):
    """What a sound rank has counted, with some of it replaced."""
    step = [[0.001 * number, phase, *HELD.values()] for number, phase in enumerate(("forward", "backward", "optimize"))]
    predicted = HELD | {"activations": None}
    return {
        "rank": 0,
        "device": "virtual GPU 0",
        "limit": 30 * 2**20,
        "peak": HELD,
        "most": HELD,
        "predicted": predicted,
        "step": step,
        "asked": None,
    } | changes


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The folder of a run of two ranks, the second of which has ended because its GPU was full."""
    monkeypatch.setattr(gpu_memory, "folder", tmp_path)
    gpu_memory.write(0, account())
    gpu_memory.write(1, account(asked=2**23, step=[]))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("300MB", 300 * 2**20),
        ("300mb", 300 * 2**20),
        ("1.5 GiB", 3 * 2**29),
        ("7kb", 7 * 2**10),
        ("12b", 12),
        ("2TB", 2**41),
        ("unlimited", math.inf),
    ],
)
def test_a_size_is_a_number_with_a_unit(text, size):
    assert bytes_of(text) == size


@pytest.mark.parametrize(
    "text", ["300", "", "MB", "-1MB", "0MB", "1e3MB", "nan", "300mbit", "9" * 400 + "MB", "99999999TB", None]
)
def test_anything_else_is_no_size(text):
    with pytest.raises(
        ValueError, match="the memory of a GPU is a number with KB, MB, GB or TB such as 300MB, or unlimited"
    ):
        bytes_of(text)


def test_the_cure_depends_on_what_fills_the_gpu():
    assert "smaller batch" in str(OutOfMemory("GPU 0", 2**23, 30 * 2**20, HELD))
    assert "whatever the batch" in str(OutOfMemory("GPU 0", 2**23, 30 * 2**20, HELD, network=True))
    assert "whatever the batch" in str(OutOfMemory("GPU 0", 2**23, 11 * 2**20, HELD | {"activations": 4 * 2**20}))


def test_the_error_of_a_real_gpu_becomes_a_sentence():
    words = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB of which 1.21 GiB is"
        " free. Process 1 has 14.5 GiB memory in use."
    )
    error = in_a_sentence(RuntimeError(words))
    assert isinstance(error, GpuFull) and error.status == 2
    assert str(error).startswith(
        "GPU 0 is out of memory: an operation tried to allocate 2.00 GiB, and 1.21 GiB of its 15.77 GiB are free: take"
        " a smaller batch"
    )
    assert isinstance(in_a_sentence(RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB.")), GpuFull)
    try:
        raise OutOfMemory("GPU 0", 2**23, 30 * 2**20, HELD) from RuntimeError(words)
    except OutOfMemory as counted:
        assert in_a_sentence(counted) is counted, "it says more"


def test_what_ranks_write_is_read_in_their_order(run):
    assert [one["asked"] for one in gpu_memory.read(run)] == [None, 2**23]
    assert gpu_memory.read(run)[0] == account()
    assert gpu_memory.summary(run)[0].keys() == account().keys() - {"step"}
    gpu_memory.forget(run)
    assert (gpu_memory.read(run), gpu_memory.summary(run), os.listdir(run)) == ([], None, [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        json.dumps(account() | {"peak": {}}),
        json.dumps(account(step=[[0, "forward", 1]])),
        json.dumps(account(rank=float("nan"))),
        json.dumps(account(device="\n")),
    ],
)
def test_a_damaged_file_is_named(run, text):
    (run / "memory_rank1.json").write_text(text)
    with pytest.raises(memory.NotCounted, match="memory_rank1.json is not what a rank has counted"):
        memory.read([run])
    assert gpu_memory.summary(run) is None


def test_the_table_shows_each_rank_against_the_formulas(run):
    lines = memory.table(memory.read([run]))
    assert lines[0].split() == ["MiB", *gpu_memory.PARTS, "together", "limit"]
    assert lines[2].split() == ["rank", "0:", "at", "its", "peak", "3.00", "1.00", "2.00", "20.00", "26.00", "30.00"]
    assert lines[4].split() == ["predicted", "3.00", "1.00", "2.00", "-"]
    assert lines[-1] == "rank 1 ended because its GPU was full: 8.0 MiB more did not fit."


def test_runs_are_named_in_words(tmp_path, monkeypatch):
    folders = [tmp_path / "plain_0", tmp_path / "every_2nd_0"]
    for folder, ranks in zip(folders, (1, 2)):
        folder.mkdir()
        monkeypatch.setattr(gpu_memory, "folder", folder)
        for rank in range(ranks):
            gpu_memory.write(rank, account(rank=rank))
    assert [name for name, _ in memory.read(folders)] == ["plain", "every 2nd, rank 0", "every 2nd, rank 1"]
    assert [name for name, _ in memory.read(folders[:1])] == ["rank 0"]


def test_own_predictions_take_the_place_of_the_formulas(run):
    ranks = memory.read([run], memory.parse("parameters=4MB, activations=16MB"))
    assert memory.table(ranks)[4].split() == ["predicted", "4.00", "1.00", "2.00", "16.00", "23.00"]


@pytest.mark.parametrize("text", ["parameters=3", "parameters", "=", "3MB"])
def test_a_wrong_prediction_is_refused(text):
    with pytest.raises(
        memory.NotCounted,
        match=f"^--predicted: '{text}' is not the size of a part: write it as in parameters=1.5MB,activations=20MB$",
    ):
        memory.parse(text)


def test_the_figure_shows_the_step_and_has_words_for_it(run):
    drawing, description = memory.draw(memory.read([run]))
    assert len(drawing.axes) == 4 and "rank 0: 26.0 MiB at its peak: parameters 3.0 MiB" in description
    assert "it ended before its first step" in [text.get_text() for text in drawing.axes[2].texts]


def test_a_bar_is_predicted_only_where_all_parts_are(run):
    def bars(predicted):
        return [text.get_text() for text in memory.draw(memory.read([run], predicted))[0].axes[1].get_xticklabels()]

    assert bars({})[-1] == "most of\neach part" and bars({"activations": 2**20})[-1] == "predicted"


def test_the_bar_of_maxima_leaves_out_what_was_before_the_step(run):
    """FSDP shards the parameters, which are whole before."""
    step = [[0.0, "forward", 2**20, 0, 0, 0], [0.1, "backward", 2**20, 2 * 2**20, 0, 0]]
    gpu_memory.write(0, account(rank=0, most=HELD | {"parameters": 9 * 2**20}, step=step))
    bars = memory.draw(memory.read([run]))[0].axes[1].patches
    assert [bar.get_height() for bar in bars][4:8] == [1, 2, 0, 0]


def test_all_ranks_have_one_scale_above_which_the_names_of_phases_stand(run):
    (gpu_memory.folder / "memory_rank1.json").unlink()
    gpu_memory.write(1, account(rank=1, peak=HELD | {"activations": 2**20}))
    drawing, _ = memory.draw(memory.read([run]))
    assert len({axes.get_ylim() for axes in drawing.axes}) == 1
    assert drawing.axes[0].get_ylim()[1] > 1.1 * 30  # MiB, the limit


def test_the_longest_step_is_drawn_whole_wherever_it_stands(run):
    for rank, milliseconds in enumerate((10, 100)):
        step = [[0.001 * time, "forward", *(2**20,) * 4] for time in (0, milliseconds)]
        gpu_memory.write(rank, account(rank=rank, step=step))
    drawing, _ = memory.draw(memory.read([run]))
    assert all(axes.get_xlim() == pytest.approx((0, 105)) for axes in drawing.axes[::2])


def test_all_ranks_have_one_scale_of_time_on_which_short_phases_have_letters(run):
    step = [[0.001 * time, phase, *(2**20,) * 4] for time, phase in ((0, "forward"), (10, "backward"), (90, "forward"))]
    (gpu_memory.folder / "memory_rank1.json").unlink()
    for rank, last in (0, 100), (1, 200):
        gpu_memory.write(rank, account(rank=rank) | {"step": [*step, [0.001 * last, "forward", *(2**20,) * 4]]})
    first, _, second, _ = memory.draw(memory.read([run]))[0].axes
    assert first.get_xlim() == second.get_xlim()
    assert [text.get_text() for text in first.texts] == ["F", "backward", "forward"]
    assert "F: forward" in second.get_xlabel()


def test_a_notebook_may_draw_some_of_the_ranks(run):
    assert "rank 0" in memory.picture([run], ranks=[0]).alt and "rank 1" not in memory.picture([run], ranks=[0]).alt


def test_a_run_that_has_not_counted_says_how_to(tmp_path):
    done = run_to_end([sys.executable, "-m", "handson", "memory", tmp_path])
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert (
        "since its run did not count its memory: repeat the run with --gpu-memory unlimited, or with a size"
        in done.stderr
    )
