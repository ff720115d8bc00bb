"""What cannot work ends in one sentence, with status 2; what fails is named; nothing hangs, and nothing is left
running."""

import os
import pickle
import re
import signal

import numpy
import pytest
from script_runs import SCRIPTS, wait_for

TASKS = [("single_gpu", None), ("multi_gpu", None), ("multi_node", 2)]
pytestmark = pytest.mark.thorough


def assert_one_sentence(ended, sentence, status=2):
    """MPICH adds what it did itself, an abort."""
    mine = [
        line
        for line in ended.errors.splitlines()
        if line.strip()
        and "MPI_Abort" not in line
        and "UserWarning" not in line
        and not line.startswith("  updater = ")
    ]
    assert len(mine) == 1 and re.search(sentence, mine[0]), ended.errors
    assert ended.status == status
    assert "Throughput" not in ended.out


@pytest.fixture(scope="module")
def snapshots(run, tmp_path_factory):
    """task -> the snapshot of a run of one epoch."""
    folder = tmp_path_factory.mktemp("snapshots")
    for task, ranks in TASKS:
        assert run(task, "-e", "1", "-o", folder / task, ranks=ranks).status == 0
    return {task: folder / task / "snapshot_epoch_1" for task, _ in TASKS}


NO_DATA_SET = "there is no data set named 'imagenet': give the path of an .npz file or one of these names: "
NO_GPU = "-g: there is no virtual GPU 99; this machine has virtual GPUs 0 to 7"


@pytest.mark.parametrize(
    "task, options, sentence",
    [
        ("single_gpu", ["--dataset", "imagenet"], NO_DATA_SET),
        ("single_gpu", ["--dataset", "/nowhere/images.npz"], "there is no file /nowhere/images.npz"),
        ("multi_gpu", ["-g", "0,99"], NO_GPU),
        ("multi_node", ["-g", "0"], "-g names 1 GPU, but there are 2 ranks on a node: name one for each"),
        ("multi_node", ["--resume", "/nowhere/snapshot"], "--resume: the snapshot /nowhere/snapshot does not exist"),
        (
            "multi_node",
            ["--communicator", "fast"],
            "there is no communicator called 'fast': choose one of hierarchical, flat, two_dimensional",
        ),
    ],
)
def test_options_that_cannot_work(task, options, sentence, run, tmp_path):
    assert_one_sentence(
        run(task, *options, "-o", tmp_path, ranks=2 if task == "multi_node" else None), re.escape(sentence)
    )


@pytest.mark.parametrize("task, ranks", TASKS)
def test_snapshots_of_another_kind(task, ranks, snapshots, run, tmp_path):
    other = next(snapshots[name] for name in snapshots if name != task)
    ended = run(task, "--resume", other, "-o", tmp_path, ranks=ranks)
    assert_one_sentence(
        ended, rf"--resume: {other} is damaged or not a snapshot of this training: give a snapshot_epoch_N of this task"
    )


@pytest.mark.parametrize("task, ranks", TASKS[1:])
def test_a_snapshot_that_is_at_the_end_already(task, ranks, snapshots, run, tmp_path):
    ended = run(task, "--resume", snapshots[task], "-e", "1", "-o", tmp_path, ranks=ranks)
    assert_one_sentence(ended, f"--resume: {snapshots[task]} is already at epoch 1: train for more epochs with -e")


class Dangerous:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_nothing_in_a_snapshot_is_executed(snapshots, run, tmp_path):
    with numpy.load(snapshots["single_gpu"]) as file:
        arrays = dict(file)
    arrays["updater/iteration"] = numpy.array(Dangerous(tmp_path / "executed"), dtype=object)
    numpy.savez(tmp_path / "snapshot.npz", **arrays)
    assert b"executed" in (tmp_path / "snapshot.npz").read_bytes()
    (tmp_path / "pickle").write_bytes(pickle.dumps(Dangerous(tmp_path / "executed")))
    for name in ("snapshot.npz", "pickle"):
        assert_one_sentence(
            run("single_gpu", "--resume", tmp_path / name, "-o", tmp_path / "out"), "is damaged or not a snapshot"
        )
    assert not (tmp_path / "executed").exists()


def test_a_snapshot_that_only_one_rank_cannot_read(snapshots, run, tmp_path):
    (tmp_path / "half").write_bytes(snapshots["multi_node"].read_bytes()[:5000])
    ended = run(
        "multi_node",
        *(["--resume", path, "-o", tmp_path] for path in (snapshots["multi_node"], tmp_path / "half")),
        ranks=2,
    )
    assert_one_sentence(ended, "half is damaged or not a snapshot")


@pytest.mark.parametrize(
    "first, second, sentence",
    [
        (["-b", "8"], ["-b", "16"], "rank 0 has batchsize 8, but rank 1 has 16: give all ranks the same options"),
        (["--double-buffering"], [], "rank 0 has double_buffering True, but rank 1 has False"),
        ([], ["--resume", None], "rank 0 has resume None, but rank 1 has a snapshot"),
    ],
)
def test_ranks_with_different_options(first, second, sentence, snapshots, run, tmp_path):
    second = [snapshots["multi_node"] if word is None else word for word in second]
    ended = run("multi_node", [*first, "-o", tmp_path], [*second, "-o", tmp_path], ranks=2)
    assert_one_sentence(ended, re.escape(sentence))


def variant(tmp_path, task, **gaps):
    """A student's version of a script: other lines in some of its gaps."""
    source = SCRIPTS[task].read_text()
    for gap, lines in gaps.items():
        source, replaced = re.subn(
            rf"( +)### BEGIN SOLUTION {gap}:.*?### END SOLUTION", rf"\1{lines}", source, flags=re.DOTALL
        )
        assert replaced == 1
    (tmp_path / "student.py").write_text(source)
    return tmp_path / "student.py"


@pytest.mark.parametrize(
    "gap, line, sentence",
    [
        (
            "devices",
            'gpus = {"gpu0": 0, "gpu1": 1}',
            "devices must have one called 'main', which updates the parameters, but they are",
        ),
        ("devices", 'gpus = {"main": 0, "gpu1": "1"}', "device 'gpu1' must have an id of 0 or more, not '1'"),
        (
            "iterators",
            "parts = [train_set]; train_iterators = [SerialIterator(train_set, args.batchsize)]",
            "there must be one iterator per device, but there is 1 iterator and 2 devices",
        ),
        (
            "iterators",
            (
                "parts = train_set[:90], train_set[:100]; train_iterators = [SerialIterator(list(zip(*part)), 8) for"
                " part in parts]"
            ),
            "the iterators have data sets of different lengths: 90, 100",
        ),
    ],
)
def test_a_students_mistakes_on_several_gpus(gap, line, sentence, run, tmp_path):
    assert_one_sentence(run(variant(tmp_path, "multi_gpu", **{gap: line}), "-o", tmp_path), re.escape(sentence))


PLAIN = (
    "optimizer = create_multi_node_optimizer(chainer.optimizers.MomentumSGD(args.lr), comm{}); optimizer.setup(model)"
)


@pytest.mark.parametrize(
    "given, options, sentence",
    [
        (
            "",
            ["--double-buffering"],
            (
                "--double-buffering would have no effect: write create_multi_node_optimizer(optimizer, comm,"
                " double_buffering=args.double_buffering)"
            ),
        ),
        (
            ", double_buffering=True",
            [],
            (
                "the optimizer has double buffering, but --double-buffering was not given: write"
                " create_multi_node_optimizer("
            ),
        ),
    ],
)
def test_double_buffering_that_the_script_and_its_option_disagree_about(given, options, sentence, run, tmp_path):
    script = variant(tmp_path, "multi_node", optimizer=PLAIN.format(given))
    assert_one_sentence(run(script, *options, "-o", tmp_path, ranks=2), re.escape(sentence))


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def test_a_killed_worker_is_named_and_all_end(start, tmp_path):
    run = start("multi_gpu", "-e", "1000", "-g", "0,1,2", "-o", tmp_path)
    wait_for(tmp_path / "snapshot_epoch_1", run)
    os.kill(children(run.process.pid)[1], signal.SIGKILL)
    ended = run.end()
    assert_one_sentence(
        ended,
        r"the worker of device 'gpu2' \(virtual GPU 2\) was killed by signal 9; all workers were stopped",
        status=1,
    )


@pytest.mark.parametrize("task, ranks", TASKS)
def test_ctrl_c_ends_everything(task, ranks, start, tmp_path):
    run = start(task, "-e", "1000", "-o", tmp_path, ranks=ranks)
    wait_for(tmp_path / "snapshot_epoch_1", run)
    os.killpg(run.process.pid, signal.SIGINT)
    ended = run.end()
    assert ended.status != 0 and "Traceback" not in ended.errors
    assert ended.errors.count("stopped by Ctrl-C before the end, so it leaves no result\n") == 1
    if not ranks:
        assert_one_sentence(
            ended, "^train_cifar_[a-z_]+.py: stopped by Ctrl-C before the end, so it leaves no result$", status=130
        )
    assert not (tmp_path / "result.json").exists()
