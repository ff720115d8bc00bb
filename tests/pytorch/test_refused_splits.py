"""What cannot be split ends every rank of a training with one sentence, before anybody waits for anybody (unit
model_parallel)."""

import contextlib
import io
import os
from pathlib import Path

import pytest
from loading import load
from ranks import on_ranks

from handson.errors import OneSentence
from handson.training import data, method_runs, options, transformer_options

SCRIPTS = Path(__file__).resolve().parents[2] / "solutions/06_model_parallel/pytorch"
RANKS = 4
OPTIONS = {
    "train_pipeline": transformer_options.add_pipeline,
    "train_sharded": transformer_options.add,
    "train_mesh": transformer_options.add_mesh,
}
DEADLOCK = [["F0", "B0", "F1", "B1"]] * 3 + [["F1", "B1", "F0", "B0"]]
REFUSED = [  # (script, options, node of each rank, what all ranks say)
    (
        "train_pipeline",
        "--blocks 1",
        "aaaa",
        "3 layers cannot be split into 4 stages: start 3 ranks at most, or give the network more --blocks",
    ),
    (
        "train_pipeline",
        "--method gpipe -b 30",
        "aaaa",
        "a batch of 30 images cannot be split into 8 equal micro-batches: --micro-batches must divide --batchsize",
    ),
    (
        "train_pipeline",
        "--method 1f1b --micro-batches 2",
        "aaaa",
        (
            "the schedule deadlocks: stage 0 waits for B0 of stage 1 to start B0, stage 1 waits for B0 of stage 2"
            " to start B0"
        ),
    ),
    ("train_pipeline", "--gpu-memory 1KB", "aaaa", "virtual GPU {rank} is out of memory"),
    (
        "train_sharded",
        "--gpu-memory 100KB",
        "aaaa",
        "take a smaller network, split it over more GPUs, or a GPU with more memory",
    ),
    ("train_sharded", "-b 500", "aaaa", "--batchsize 500 is larger than a rank's number of images"),
    (
        "train_mesh",
        "--heads 2",
        "aaaa",
        (
            "the 2 heads of an attention cannot be divided among 4 ranks: split them among 1, 2 ranks, or choose another"
            " --heads"
        ),
    ),
    (
        "train_mesh",
        "",
        "aaab",
        "the ranks do not form a mesh (3 on a, 1 on b): give each node the same number of ranks",
    ),
    ("train_mesh", "", "abab", "the ranks of a node must be consecutive"),
    ("train_mesh", "--width 30", "aabb", "--width 30 cannot be divided among 4 heads: take a multiple of --heads"),
]


def solution(script):
    return load(SCRIPTS / f"{script}.py")


def refused(comm, out):
    """What this rank says in each case: its sentence, whether it raises it or prints it."""
    comm.devices, said, (train_set, _) = "devices of a test", [], data.load("digits")
    for script, words, nodes, _ in REFUSED:
        module = solution(script)
        if script == "train_pipeline":
            module.METHODS["1f1b"] = lambda stage, stages, micro_batches: DEADLOCK[stage]
        os.environ["HANDSON_NODE"], comm.inter_size = nodes[comm.rank], len(set(nodes))
        parser = options.training_parser(
            SCRIPTS / f"{script}.py", gpus=list(range(RANKS)), add_options=OPTIONS[script](module.METHODS)
        )
        args = parser.parse_args([*words.split(), "--epoch", "1", "--out", str(out)])
        [(method, seed)] = method_runs.runs(args)
        printed = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(printed):
            try:
                module.train(comm, method_runs.one_run(args, method, seed), method, train_set)
            except OneSentence as error:
                print(error, file=printed)
            except SystemExit as end:
                assert end.code == 2
        said.append(printed.getvalue().strip())
    return said


@pytest.mark.timeout(120)
@pytest.mark.thorough
def test_what_can_not_be_split_is_one_sentence(tmp_path):
    of_ranks = on_ranks(refused, RANKS, tmp_path)
    for number, (script, words, _, sentence) in enumerate(REFUSED):
        said = [of_rank[number] for of_rank in of_ranks]
        assert sentence.format(rank=0) in said[0], (script, words)
        assert all(len(of_rank.splitlines()) <= 1 for of_rank in said), said
        assert all(not of_rank or sentence.format(rank=rank) in of_rank for rank, of_rank in enumerate(said)), (
            "the others say the same, or leave it to rank 0"
        )
