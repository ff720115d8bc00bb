"""What a training announces before it begins."""

import io
import json
import sys
from types import SimpleNamespace

import pytest

from handson.training import banner


class Ranks:
    """A communicator, as far as it matters here."""

    def __init__(self, size, inter_size=1):
        self.size, self.inter_size = size, inter_size


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job of two nodes with two processes and two virtual GPUs each; this process is on the first."""
    (tmp_path / "nodes").write_text("node1\nnode1\nnode2\nnode2\n")
    (tmp_path / "nodes.json").write_text(
        json.dumps({name: {"cores": [0, 1], "slots": slots} for name, slots in (("node1", [0, 1]), ("node2", [2, 3]))})
    )
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "nodes"))
    monkeypatch.setenv("HANDSON_NODES", str(tmp_path / "nodes.json"))
    monkeypatch.setenv("HANDSON_NODE", "node1")


@pytest.mark.parametrize(
    ("workers", "gpus", "ranks", "words"),
    [
        (6, [0, 1, 0], 6, "6 ranks run in a job of 4 processes, and share its cores, so their times are unreliable"),
        (4, [0, 1], 4, ""),
        (2, [0, 5], None, "-g names GPU 5, but on node1 this job has GPUs 0 to 1: workers share cores"),
        (2, [0, 1], None, ""),
    ],
)
def test_a_run_that_takes_more_than_its_job_has_is_told(workers, gpus, ranks, words, job):
    said = banner.beyond_the_job(workers, gpus, ranks and Ranks(ranks))
    assert said.startswith(words) and bool(said) == bool(words)


def test_outside_a_job_a_run_takes_what_it_wants(monkeypatch):
    for name in ("PBS_NODEFILE", "HANDSON_NODES", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    assert banner.beyond_the_job(64, [99], Ranks(64)) == ""


def test_a_memory_for_gpus_is_announced_as_without_effect_where_nothing_counts_it():
    args = SimpleNamespace(workers=2, gpu=[0, 1], gpu_memory=300 * 2**20, track="chainer")
    assert list(banner.without_effect(args)) == [
        "--gpu-memory has no effect, as the Chainer track does not count its arrays"
    ]
    args.track = "pytorch"
    assert not list(banner.without_effect(args))


@pytest.mark.parametrize(
    ("workers", "gpus", "ranks", "patience", "words"),
    [
        (
            4,
            [0, 1, 2],
            Ranks(4, 2),
            120,
            ["-g names 3 GPUs, but only 2 ranks run on a node, with one GPU each: 2 not used"],
        ),
        (4, [0, 1], Ranks(4, 2), 7, []),
        (1, [0], None, 7, ["--patience has no effect, as a single process waits for no other"]),
        (1, [0], None, 120, []),
        (2, [0, 1], None, 7, []),
    ],
)
def test_options_without_effect_are_told(workers, gpus, ranks, patience, words):
    assert list(banner.without_effect(SimpleNamespace(workers=workers, gpu=gpus, patience=patience), ranks)) == words


@pytest.mark.parametrize(
    ("terminal", "job", "watched"),
    [(True, None, True), (True, "PBS_INTERACTIVE", True), (True, "PBS_BATCH", False), (False, None, False)],
)
def test_what_is_drawn_for_a_terminal_stays_out_of_a_jobs_output(terminal, job, watched, monkeypatch):
    """Open MPI gives the ranks of a job a terminal of their own."""
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("PBS_ENVIRONMENT", job) if job else monkeypatch.delenv("PBS_ENVIRONMENT", raising=False)
    assert banner.on_terminal() is watched
    banner.TableOutput().write("\033[Jepoch")
    assert sys.stdout.getvalue() == ("\033[Jepoch" if watched else "epoch")
