"""Recording, by real runs of both tracks at a small size: a file for each rank, with the steps asked for and all
collectives."""

import os
import re

import environments
import made_profiles as made
import pytest
from waiting import run_to_end

from handson.profiling import analysis, rank_clocks, readers
from handson.profiling.timeline import COMMUNICATION, COMPUTE, LOADING
from handson.training import results

SCRIPTS = made.ROOT / "solutions"
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module", autouse=True)
def environment(tmp_path_factory):
    """Ranks start in half the time, and their operators are the same (tests/test_no_compiler.py)."""
    with environments.entered(tmp_path_factory.mktemp("environment")):
        yield


def profile(*words, cwd):
    """Run `python -m handson profile WORDS...`."""
    command = ["python", "-m", "handson", "profile", *map(str, words)]
    return run_to_end(command, cwd=cwd, env=os.environ | {"OMP_NUM_THREADS": "1"})


def recorded(folder, task, track, *launcher, skip=4, steps=5, options=()):
    """The process and the Run of a solution, recorded into `folder`."""
    script = next(SCRIPTS.glob(f"*_{task}/{track}/train_cifar_*.py"))
    words = [
        "--skip",
        skip,
        "--steps",
        steps,
        "-o",
        folder,
        "--",
        *launcher,
        "python",
        script,
        "-e",
        1,
        "--size",
        32,
        "-o",
        folder,
        *options,
    ]
    done = profile(*words, cwd=folder.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return done, readers.load([folder])[0]


@pytest.mark.parametrize(
    ("task", "track", "launcher", "ranks"),
    [
        ("single_gpu", "pytorch", (), 1),
        ("single_gpu", "chainer", (), 1),
        ("multi_gpu", "pytorch", (), 2),
        ("multi_gpu", "chainer", (), 2),
        ("multi_node", "pytorch", ("mpiexec", "-n", "2"), 2),
        ("multi_node", "chainer", ("mpiexec", "-n", "2"), 2),
    ],
)
def test_every_rank_leaves_a_file_with_the_steps_asked_for(tmp_path, task, track, launcher, ranks):
    done, run = recorded(tmp_path / "out", task, track, *launcher)
    assert sorted(path.name for path in (tmp_path / "out").glob("rank*")) == [
        f"rank{rank}.json" for rank in range(ranks)
    ]
    assert [(one.rank, one.size or 1) for one in run.timelines] == [(rank, ranks) for rank in range(ranks)]
    assert [len(one.steps()) for one in run.timelines] == [5] * ranks and len(analysis.common_steps(run)[0]) == 5
    for one in run.timelines:
        begin, end = one.steps()[0, 1], one.steps()[-1, 2]
        for kind in (COMPUTE, LOADING, *[COMMUNICATION] * (ranks > 1)):
            assert ((one.kind == kind) & (one.begin >= begin) & (one.begin <= end)).sum() >= 4, (kind, one.rank)
    if ranks > 1:  # gloo's thread may end the last after the recording has ended
        assert len(set(rank_clocks.find(run.timelines).step) & set(analysis.common_steps(run)[0][:, 0].tolist())) >= 4
        assert run.offsets == {0: 0, 1: 0}
    for of_rank in analysis.shares(run):
        assert sum(of_rank.parts.values()) == pytest.approx(of_rank.step) and of_rank.share("compute") > 0.05
    assert re.search(r"^Throughput: ", done.stdout, re.MULTILINE)
    assert re.search(
        r"^Recorded 5 steps in \S+: a step took [\d.]+ ms, [\d.]+ ms before that \([+-]\d+ %\)$",
        done.stderr,
        re.MULTILINE,
    )
    assert results.read(tmp_path / "out").workers == ranks


def test_a_double_buffered_run_shows_its_all_reduces_while_it_computes(tmp_path):
    _, run = recorded(tmp_path / "out", "multi_node", "chainer", "mpiexec", "-n", "2", options=("--double-buffering",))
    [zero, _] = run.timelines
    assert "mpi:all-reduce in flight" in zero.names
    assert len(rank_clocks.find(run.timelines).step) >= 4


def test_a_training_that_ends_before_the_last_step_to_record_leaves_those_before(tmp_path):
    done, run = recorded(tmp_path / "out", "multi_gpu", "pytorch", skip=20, steps=50)
    # 24 steps, then an evaluation, which is in what the profiler takes for the next.
    assert [len(one.steps()) for one in run.timelines] == [4, 4]
    assert "Recorded 4 steps" in done.stderr


def test_a_training_too_short_to_record_says_so(tmp_path):
    script = SCRIPTS / "01_single_gpu/chainer/train_cifar_single_gpu.py"
    done = profile(
        "--skip", 90, "-o", tmp_path, "--", "python", script, "-e", 1, "--size", 16, "-o", tmp_path, cwd=tmp_path
    )
    assert done.returncode == 0
    assert "Nothing was recorded: the training ended after" in done.stderr and not list(tmp_path.glob("rank*"))


def test_what_was_chosen_and_why_is_said_first(tmp_path):
    done = profile("-o", tmp_path / "out", "--", "true", cwd=tmp_path)
    assert re.match(
        r"Recording with torch \(PyTorch's profiler or Chainer's hooks\), which needs no GPU, and there is none here:"
        r" steps 6 to 35, into .*/out; ",
        done.stdout,
    )


def test_the_command_keeps_its_exit_status_and_its_options(tmp_path):
    done = profile("--", "sh", "-c", 'echo "$0 $1"; exit 7', "--tool", "-o", cwd=tmp_path)
    assert done.returncode == 7 and done.stdout.endswith("--tool -o\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--", "no-such-command"], "there is no command no-such-command"),
        (["--tool", "nsys", "--", "true"], "nsys is not on PATH"),
        (["-o", "/proc/nowhere", "--", "true"], "cannot be used as a folder for profiles"),
    ],
)
def test_what_cannot_be_recorded_is_said_in_a_sentence(tmp_path, words, sentence):
    done = profile(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("handson profile: ")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
