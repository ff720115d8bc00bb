"""The command line of the training scripts: what can be wrong with it is said in one sentence, with status 2."""

import os
import re
import subprocess
import sys

import pytest

from handson import errors
from handson.training import launch, options

MARKS = {"RANK": "TORCHELASTIC_RUN_ID", "SLURM_PROCID": "SLURM_STEP_ID"}  # what else torchrun and srun set


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Every test has a folder, a hook and a launcher's environment of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    for name in (*launch.TORCHRUN, *launch.MPIEXEC, *launch.SRUN, *MARKS, "PBS_JOBID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


@pytest.fixture
def parse(monkeypatch):
    def parse(*words, program="02_multi_gpu/pytorch/train_cifar_multi_gpu.py", gpus=(0, 1)):
        monkeypatch.setattr(sys, "argv", [program, *map(str, words)])
        return options.parse(gpus)

    return parse


@pytest.fixture
def refusal(parse, capsys):
    """The one sentence that a command line gets."""

    def refusal(*words, **how):
        with pytest.raises(SystemExit) as end:
            parse(*words, **how)
        out, errors = capsys.readouterr()
        assert (end.value.code, out) == (2, "")
        assert re.fullmatch(r"train_cifar_multi_gpu\.py: [^\n]+\n", errors), errors
        return errors

    return refusal


def test_the_defaults_are_those_of_the_lecture(parse):
    args = parse()
    assert (args.batchsize, args.epoch, args.dataset, args.size, args.seed, args.gpu) == (
        32,
        4,
        "digits",
        256,
        0,
        (0, 1),
    )
    assert (args.unit, args.script, args.track) == ("multi_gpu", "train_cifar_multi_gpu", "pytorch")


def test_the_memory_of_a_gpu_is_a_size_with_a_unit(parse, refusal, monkeypatch):
    assert (parse().gpu_memory, parse("--gpu-memory", "300MB").gpu_memory) == (None, 300 * 2**20)
    for wrong in "300", "lots", "0MB", "":
        assert "--gpu-memory: must be a number with KB, MB, GB or TB such as 300MB, or unlimited, not" in refusal(
            f"--gpu-memory={wrong}"
        )
    monkeypatch.setenv("HANDSON_GPU_MEMORY", "2GB")  # by qsub -l gpu_memory=2gb
    assert (parse().gpu_memory, parse("--gpu-memory", "300MB").gpu_memory) == (2**31, 300 * 2**20)
    monkeypatch.setenv("HANDSON_GPU_MEMORY", "lots")
    assert "not 'lots'" in refusal()


def test_long_and_short_options_mean_the_same(parse):
    assert vars(parse("-b", 8, "-e", 2, "-g", "3,1", "-o", "x")) == vars(
        parse("--batchsize", 8, "--epoch", 2, "--gpu", "3,1", "--out", "x")
    )
    assert parse("-g", "3,1", "-o", "x").gpu == [3, 1]


@pytest.mark.parametrize("option", ["-b", "-e", "--size", "--lr"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "many", "", "1e30", "1" * 5000])
def test_numbers_must_be_above_0_and_sensible(refusal, option, value):
    assert option in refusal(f"{option}={value}") if option.startswith("--") else option in refusal(option + value)


@pytest.mark.parametrize("value", ["-1", "1.5", "x", "", "9" * 30, "²"])
def test_a_seed_must_be_one_that_every_generator_takes(refusal, value):
    assert "--seed" in refusal(f"--seed={value}")


def test_an_unknown_option_is_refused(refusal):
    assert "--batch" in refusal("--batches", 3) and "--nonsense" in refusal("--nonsense")


def test_a_place_where_results_cannot_go_is_named(refusal, tmp_path):
    (tmp_path / "file").touch()
    assert f"--out: {tmp_path}/file/x cannot be used" in refusal("-o", tmp_path / "file" / "x")
    assert f"--out: {tmp_path}/file cannot be used" in refusal("-o", tmp_path / "file")


@pytest.mark.parametrize(("batchsize", "size", "fits"), [(1, 32, False), (2, 16, False), (3, 32, True), (1, 33, True)])
def test_batches_that_torch_cannot_normalise_are_refused(parse, refusal, batchsize, size, fits):
    """The network ends in 1 x 1 pixel for small images, and one value has no variance."""
    words = ["-b", batchsize, "--size", size]
    assert parse(*words).size == size if fits else "batch normalisation" in refusal(*words)


def test_the_output_folder_is_made(parse, tmp_path):
    assert parse("-o", "a/b").out.is_dir()
    assert (tmp_path / "a/b").is_dir()


def test_results_of_a_job_are_named_after_it(parse, monkeypatch):
    monkeypatch.setenv("PBS_JOBID", "17.server")
    assert str(parse().out) == "results/multi_gpu_pytorch_17"
    monkeypatch.delenv("PBS_JOBID")
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    assert (
        str(parse(program="somewhere/01_single_gpu/chainer/train_cifar_single_gpu.py").out)
        == "results/single_gpu_chainer_18"
    )


@pytest.mark.parametrize(
    ("program", "unit", "script", "track", "folder"),
    [
        ("train_cifar_multi_gpu.py", "", "train_cifar_multi_gpu", "pytorch", "train_cifar_multi_gpu"),
        ("my own/pytorch/train.py", "", "train", "pytorch", "train"),
        ("04_profiling/pytorch/slow_loading.py", "profiling", "slow_loading", "pytorch", "slow_loading"),
        ("../elsewhere/07_new_unit/chainer/train_new_unit.py", "new_unit", "train_new_unit", "chainer", "new_unit"),
        ("07_new_unit/drafts/train_new_unit.py", "", "train_new_unit", "pytorch", "train_new_unit"),
    ],
)
def test_a_script_is_known_by_its_place(parse, monkeypatch, program, unit, script, track, folder):
    """A copy elsewhere works too, and belongs to no unit; its track is what it has imported."""
    monkeypatch.delitem(sys.modules, "handson.chainer", raising=False)
    monkeypatch.setenv("PBS_JOBID", "17")
    args = parse(program=program)
    assert (args.unit, args.script, args.track, str(args.out)) == (unit, script, track, f"results/{folder}_{track}_17")


def test_a_copy_of_a_chainer_script_knows_its_track(parse, monkeypatch):
    monkeypatch.setitem(sys.modules, "handson.chainer", object())
    assert parse(program="copy.py").track == "chainer"


def test_two_runs_of_the_same_second_have_folders_of_their_own_and_the_ranks_of_one_share_theirs(parse, monkeypatch):
    monkeypatch.setattr(options.time, "strftime", lambda form: "20261122-120000")
    folders = []
    for launched, process, launcher in ((False, 1, 9), (False, 2, 9), (True, 3, 7), (True, 4, 7)):
        monkeypatch.setattr(os, "getpid", lambda: process)
        monkeypatch.setattr(os, "getppid", lambda: launcher)
        monkeypatch.setenv("PMI_RANK", "0") if launched else None
        folders.append(parse().out.name.rpartition("-")[2])
    assert folders == ["1", "2", "7", "7"]


@pytest.mark.parametrize("variable", MARKS)
def test_rank_0_says_what_is_wrong_before_the_others(refusal, monkeypatch, variable):
    """They wait for its end to have them stopped; where rank 0 was right, they speak."""
    waited = []
    monkeypatch.setattr(options.time, "sleep", waited.append)
    monkeypatch.setenv(MARKS[variable], "1")
    monkeypatch.setenv(variable, "0")
    refusal("-b", 0)
    assert waited == []
    monkeypatch.setenv(variable, "3")
    refusal("-b", 0)
    assert len(waited) == 1 and waited[0] >= 2


def test_help_names_every_option(parse, capsys):
    names = "batchsize epoch gpu dataset size lr seed out patience".split()
    for track, of_track in ("pytorch", names), ("chainer", [*names, "resume"]):
        with pytest.raises(SystemExit) as end:
            parse("--help", program=f"02_multi_gpu/{track}/train_cifar_multi_gpu.py")
        assert end.value.code == 0
        out = capsys.readouterr().out
        assert all(f"--{option}" in out for option in of_track)
        assert ("--resume" in out) == ("resume" in of_track)


def a_full_disk():
    try:
        raise OSError(28, "No space left on device")
    except OSError as error:
        try:
            raise RuntimeError("snapshot failed") from error
        except RuntimeError as failed:
            return failed


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device", "out/x"), a_full_disk(), RuntimeError("basic_ios::clear: iostream error")],
)
def test_a_full_disk_is_one_sentence_with_what_can_be_deleted(error, parse, capfd, monkeypatch):
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr("atexit._run_exitfuncs", lambda: None)
    parse()
    sys.excepthook(type(error), error, None)
    [sentence] = capfd.readouterr().err.splitlines()
    assert ended == [2]
    assert "the disk is full" in sentence
    assert "delete files that you no longer need, such as old folders in `results`" in sentence


def test_a_script_that_trains_on_one_gpu_refuses_several(refusal):
    assert "-g names 2 GPUs, but this script trains on one: name one of them" in refusal("-g", "0,1", gpus=[0])


@pytest.mark.parametrize(
    ("variables", "hint"), [({}, False), ({"PBS_JOBID": "1"}, True), ({"PBS_JOBID": "1", "TRACK": "pytorch"}, False)]
)
def test_an_open_gap_is_one_sentence_which_names_the_other_track_where_that_may_be_meant(
    variables, hint, parse, tmp_path, capfd, monkeypatch
):
    ended, name = [], "train_cifar_multi_gpu.py"
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr("atexit._run_exitfuncs", lambda: None)
    monkeypatch.delenv("TRACK", raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    (tmp_path / "chainer").mkdir()
    (tmp_path / "chainer" / name).touch()
    parse(program=f"pytorch/{name}")
    sys.excepthook(NotImplementedError, NotImplementedError("PUT YOUR CODE: device"), None)
    in_worker = RuntimeError("-- Process 0 --\nTraceback:\nNotImplementedError: PUT YOUR CODE: device\n")
    sys.excepthook(RuntimeError, in_worker, None)
    first, second = capfd.readouterr().err.splitlines()
    assert ended == [2, 2] and first == second
    assert first.startswith(f"{name}: the gap `device` is still to be filled: look for PUT YOUR CODE in pytorch/{name}")
    assert first.endswith("submit the job with -v TRACK=chainer") == hint


def test_an_open_gap_of_a_file_beside_the_script_is_looked_for_in_that_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "train_hooks.py")])
    hooks = tmp_path / "hooks.py"
    hooks.write_text('def top_k():\n    raise NotImplementedError("PUT YOUR CODE: top_k")\n')
    names = {}
    exec(compile(hooks.read_text(), str(hooks), "exec"), names)
    with pytest.raises(NotImplementedError) as raised:
        names["top_k"]()
    assert str(errors.in_a_sentence(raised.value)).endswith(f"look for PUT YOUR CODE in {hooks}")
    of_worker = RuntimeError(f'  File "{hooks}", line 2, in top_k\nNotImplementedError: PUT YOUR CODE: top_k\n')
    assert str(errors.in_a_sentence(of_worker)).endswith(f"look for PUT YOUR CODE in {hooks}")


def test_other_mistakes_keep_their_traceback(parse, capfd):
    parse()
    try:
        1 / 0
    except ZeroDivisionError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_the_options_are_parsed_without_torch():
    """So that a wrong one is answered at once, on the Chainer track without torch at all."""
    script = "import sys; from handson.training import options; options.parse([0]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
