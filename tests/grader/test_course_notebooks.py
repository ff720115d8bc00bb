"""The notebooks are clear about what is still to be filled. (tests/browser runs them with the solutions filled in.)"""

import json
import re
import shutil

import environments
import pytest
from smaller import few_images, smaller

from grader.exercises import ROOT, given_out
from handson.training.results import Result, read, write

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module", autouse=True)
def environment(tmp_path_factory):
    """The notebooks' processes have a stand-in for PyTorch's compiler, which halves the start of each rank."""
    with environments.entered(tmp_path_factory.mktemp("environment")):
        yield


@pytest.fixture
def few(monkeypatch, tmp_path):
    """Trainings have a third of the images: they are as many, with as many ranks and at least two steps, and end
    sooner."""
    few_images(tmp_path / "data")
    monkeypatch.setenv("HANDSON_DATA", str(tmp_path / "data"))


def execute(script, course, **options):
    """The notebook of a percent script after it has been run."""
    import jupytext  # takes a second, which all tests would wait for
    import nbclient

    notebook = jupytext.reads(smaller(script), fmt="py:percent")
    client = nbclient.NotebookClient(
        notebook, timeout=500, kernel_name="python3", resources={"metadata": {"path": course / "notebooks"}}, **options
    )
    return client.execute()


def outputs(notebook, kind):
    return [output for cell in notebook.cells for output in cell.get("outputs", ()) if output.output_type == kind]


def test_a_gap_still_to_be_filled_is_named_by_its_cell(course):
    notebook = execute(given_out("notebooks/00_start.ipynb").text, course, allow_errors=True)
    errors = [error for error in outputs(notebook, "error") if error.ename == "NotImplementedError"]
    assert {"PUT YOUR CODE: workers", "PUT YOUR CODE: prediction"} == {error.evalue for error in errors}


@pytest.mark.parametrize(
    ("filled", "sentence"), [((), "qsub refused"), (("run_single_gpu_training.sh",), "ended with status")]
)
def test_a_job_with_gaps_still_to_be_filled_says_so_in_a_sentence(course, tmp_path, filled, sentence):
    shutil.copytree(ROOT / "exercises/01_single_gpu", tmp_path / "exercises/01_single_gpu")
    for name in filled:
        shutil.copy(course / "exercises/01_single_gpu" / name, tmp_path / "exercises/01_single_gpu" / name)
    (tmp_path / "notebooks").mkdir()
    cells = given_out("notebooks/01_single_gpu.ipynb").text.split("# %%")
    chosen = [cell for cell in cells if "TRACK = " in cell or "job = submit(" in cell]
    notebook = execute("# %%".join(["", *chosen]), tmp_path, allow_errors=True)
    (error,) = outputs(notebook, "error")
    assert len(error.traceback) == 1 and sentence in error.traceback[0]


@pytest.mark.timeout(1000)
def test_the_notebook_on_communication_runs_what_chainermn_has_in_its_track(course, few):
    cells = (ROOT / "solutions/05_communication/05b_communication.py").read_text().split("# %%")
    needed = ('TRACK = "', "def run(", "HALF_AND_LATE = ", "if TRACK ==")
    chosen = "# %%".join(["", *(cell for cell in cells if any(words in cell for words in needed))])
    notebook = execute(
        chosen.replace('TRACK = "pytorch"', 'TRACK = "chainer"').replace(
            "SEEDS, EPOCHS = 2, 6", "SEEDS, EPOCHS = 1, 1"
        ),
        course,
    )
    assert len([result for result in outputs(notebook, "execute_result") if "image/png" in result["data"]]) == 1
    ran = [read(path) for path in (course / "exercises/05_communication/results").glob("*/*/result.json")]
    assert {one.track for one in ran} == {"chainer"}
    assert sorted(one.communicator for one in ran) == sorted(
        ["plain", "float16", "double-buffering", "float16-double-buffering"]
    )


def test_the_notebook_on_scaling_predicts_16_workers_and_runs_them(course):
    fields = dict(
        script="train_cifar_single_gpu",
        track="pytorch",
        workers=1,
        nodes=1,
        device="1 virtual GPU",
        dataset="digits",
        size=64,
        batchsize=32,
        epochs=1,
        seed=0,
    )
    slowed = Result(
        unit="single_gpu",
        profiled=True,
        images=320,
        seconds=90.0,
        train_seconds=90.0,
        steps=[9.0] * 10,
        parameters=72_000,
        **fields,
    )
    write(
        slowed, course / "exercises/01_single_gpu/results/profiled"
    )  # profiling slows it down, so it is not a measurement
    cells = (ROOT / "solutions/08_scaling/08_scaling.py").read_text().partition("# %%\nfrom grader import check")[0]
    notebook = execute(cells, course)
    said = "".join(output.text for output in outputs(notebook, "stream"))
    assert len([result for result in outputs(notebook, "execute_result") if "image/png" in result["data"]]) == 4
    (longest,) = re.findall(r"longest ([\d.]+) ms", said)
    assert float(longest) < 9000 and re.search(r"16 ranks: [\d.]+ ms per step; predicted: 250", said)
    assert re.search(r"\d+ nodes with (25|100)gbit: [\d,]+ images/s", said)
    ran = [read(path) for path in (course / "exercises/08_scaling/results").glob("rehearsal_*/result.json")]
    assert sorted((one.workers, one.nodes) for one in ran) == [(2, 2), (4, 2), (16, 2)]


FEW_RANKS = {  # for the notebook on model parallelism: most of its time is that of ranks that start
    "--epoch 1 --batchsize 16 --blocks 2": "--epoch 1 --batchsize 120 --blocks 2",
    "--epoch 1 --batchsize 128 --width 256 --method": "--epoch 1 --batchsize 240 --method",
    'of_torch = "torch-gpipe torch-1f1b torch-interleaved ': 'of_torch = "torch-1f1b ',
    "--blocks 8 --batchsize 256 --gpu-memory": "--batchsize 240 --gpu-memory",
    '"four_stages", options, ranks=4': '"four_stages", options, ranks=2',
    "stages=4, micro_batches=8": "stages=2, micro_batches=8",
    "RATES = (800, 400, 160)": "RATES = (800,)",
    "BLOCKS, IMAGES, TOKENS, WIDTH = 1, 64, 16, 128": "BLOCKS, IMAGES, TOKENS, WIDTH = 1, 120, 16, 64",
    "naive gpipe --blocks 2 --batchsize 256": "naive gpipe --blocks 1 --batchsize 240",
}


@pytest.mark.timeout(1000)
def test_the_notebooks_on_model_parallelism_run_to_their_end(course, few):
    sources = [ROOT / f"solutions/06_model_parallel/{name}_model_parallel.py" for name in ("06", "06b")]
    script = "\n".join(source.read_text() for source in sources)
    for setting, less in FEW_RANKS.items():
        assert setting in script, setting
        script = script.replace(setting, less)
    with_own_tests = ("--heads 3", "mpiexec -n 4", "check(")
    chosen = [cell for cell in script.split("# %%") if not any(word in cell for word in with_own_tests)]
    notebook = execute("# %%".join(chosen), course)
    pictures = [result for result in outputs(notebook, "execute_result") if "image/png" in result["data"]]
    assert len(pictures) == 26 and all(picture.metadata["image/png"]["alt"].endswith(".") for picture in pictures)
    printed = "".join(output.text for output in outputs(notebook, "stream"))
    assert "virtual GPU 0 is out of memory" in printed and "all-reduces in backward" in printed
    results = course / "exercises/06_model_parallel/results"
    for name, ranks, count in (("saving", 1, 5), ("sharded_2", 2, 3), ("two_stages", 2, 5), ("chainer", 2, 2)):
        runs = [read(path) for path in results.glob(f"{name}/*/result.json")]
        losses = [run.log[-1]["main/loss"] for run in runs]
        assert [run.workers for run in runs] == [ranks] * count and losses == pytest.approx(
            [losses[0]] * count, rel=1e-3
        ), name


@pytest.mark.timeout(1000)
def test_the_notebook_on_attention_and_experts_runs_on_one_node_and_on_two(course, few):
    script = (ROOT / "solutions/09_attention_and_experts/09_attention_and_experts.py").read_text()
    for setting, less in {
        "TOKENS, HEADS, WIDTH = 2048": "TOKENS, HEADS, WIDTH = 256",
        "--epoch 3": "--epoch 1",
    }.items():
        assert setting in script, setting
        script = script.replace(setting, less)
    notebook = execute("# %%".join(cell for cell in script.split("# %%") if "check(" not in cell), course)
    pictures = [result for result in outputs(notebook, "execute_result") if "image/png" in result["data"]]
    assert len(pictures) == 5 and all(picture.metadata["image/png"]["alt"].endswith(".") for picture in pictures)
    printed = "".join(output.text for output in outputs(notebook, "stream"))
    assert "pad it to 1004 tokens" in printed and "a capacity of 0 tokens" in printed
    results = course / "exercises/09_attention_and_experts/results"
    for name, ranks in (("two_ranks", 2), ("four_ranks", 4)):
        found = json.loads((results / name / "attention.json").read_text())
        width = found["heads"] * found["width"]
        sent = {row["way"]: row["sent"] for row in found["rows"]}
        assert found["ranks"] == ranks and len(found["rows"]) == 6
        assert sent["ring"] == 2 * (ranks - 1) * 4 * 256 // ranks * width
        assert sent["heads"] == 4 * (ranks - 1) * 4 * 256 // ranks * width // ranks
    assert {run.workers for run in map(read, (results / "experts").glob("*/result.json"))} == {2}
