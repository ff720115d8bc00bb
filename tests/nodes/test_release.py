"""Every job script of the course on a PBS as it is released (see the key `strict` of a site): nodes have other names,
share no temporary folder, and are reached by pbsdsh -n; there are no resources of ours, and qsub -V sends nothing."""

import shutil
from pathlib import Path

import pytest
from environments import ROOT, environment_of
from node_jobs import Jobs
from smaller import few_images

from handson import frameworks
from handson.cluster import virtual_nodes
from handson.training import map_files

SMALL = "--epoch 1 --size 32"
ON_ONE, FOUR, TWO_ON_ONE = ("select=1:ngpus=1:mpiprocs=1", "select=2:ngpus=2:mpiprocs=2", "select=1:ngpus=2:mpiprocs=2")
SCRIPTS = [  # folder, job script, its variables, and what to ask for in place of its own resources
    ("00_start", "first_job.sh", {}, None),
    ("jobs/pbs", "run_doctor.sh", {}, None),
    ("jobs/pbs", "run_network.sh", {}, None),
    *(
        (f"0{number}_{task}", f"run_{task}_{kind}.sh", {"TRACK": track, "OPTIONS": SMALL}, None)
        for number, task in enumerate(("single_gpu", "multi_gpu", "multi_node"), 1)
        for track in ("pytorch", "chainer")
        for kind in ("training", "profile")
    ),
    ("04_profiling", "run_profile.sh", {"SCRIPT": "train_steps.py", "OPTIONS": SMALL}, None),
    ("05_communication", "run_all_reduce.sh", {"OPTIONS": "--largest 65536 -o results/all_reduce"}, None),
    *(
        ("05_communication", "run_script.sh", {"SCRIPT": script, "OPTIONS": options}, select)
        for script, options, select in (
            ("train_data_parallel.py", "--method 1-KB --epoch 1 -b 60", None),
            ("train_hooks.py", "--method 1-bit --epoch 1 -b 60", None),
            ("train_local_sgd.py", "--method local-sgd-4 --epoch 1 -b 60", None),
            ("train_parameter_server.py", "--epoch 1 -b 60", FOUR),
            ("train_cntk.py", "-e 1", None),
        )
    ),
    ("05_communication", "run_script.sh", {"SCRIPT": "train_hooks.py", "OPTIONS": "-e 1", "TRACK": "chainer"}, None),
    *(
        ("06_model_parallel", "run_script.sh", {"SCRIPT": script, "OPTIONS": options, "TRACK": track}, select)
        for script, options, track, select in (
            ("train_memory.py", "--method plain --epoch 1 -b 120 --gpu-memory unlimited", "pytorch", ON_ONE),
            ("train_sharded.py", "--method ddp --epoch 1 -b 120", "pytorch", None),
            ("train_pipeline.py", "--method gpipe --epoch 1 -b 240", "pytorch", None),
            ("train_pipeline.py", "--method gpipe --epoch 1 -b 240 --blocks 2", "chainer", None),
            ("train_mesh.py", "--method tensor-inside --epoch 1 -b 120 --blocks 1", "pytorch", FOUR),
        )
    ),
    ("08_scaling", "run_rehearsal.sh", {"OPTIONS": "--steps 4"}, None),
]
OF_FRAMEWORKS = [
    ("pytorch/train_cifar_data_parallel.py", "none", TWO_ON_ONE),
    ("tensorflow/train_cifar_single_gpu.py", "none", ON_ONE),
    ("tensorflow/train_cifar_mirrored.py", "none", TWO_ON_ONE),
    ("tensorflow/train_cifar_multi_worker.py", "", None),
    ("tensorflow/train_cifar_parameter_server.py", "", FOUR),
    ("lightning/train_cifar_lightning.py", "", None),
    ("accelerate/train_cifar_accelerate.py", "", None),
    ("jax/train_cifar_shard_map.py", "none", TWO_ON_ONE),
    ("jax/train_cifar_multi_process.py", "", None),
]
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(600),
    pytest.mark.skipif(virtual_nodes.why_not() is not None, reason=f"{virtual_nodes.why_not()}"),
]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    jobs = Jobs(folder, path=[environment_of(ROOT, folder / "venv")], release=True)
    few_images(folder / "data")
    map_files.write("digits", folder / "data/digits_files", say=lambda line: None)
    jobs.environment["HANDSON_DATA"] = str(folder / "data")
    yield jobs
    jobs.close()


def run(jobs, unit, script, variables, select):
    """Submit a job script in a copy of its folder, with the variables' names alone; returns (its folder, its output)."""
    source = ROOT / (unit if unit.startswith("jobs") else f"solutions/{unit}")
    jobs.folder = jobs.state.parent / source.name
    leave_out = shutil.ignore_patterns("results", "*.[oe][0-9]*", "__pycache__")
    shutil.copytree(source, jobs.folder, dirs_exist_ok=True, ignore=leave_out)
    arguments = ["-v", ",".join([*variables, "HANDSON_DATA"]), "-j", "oe", "-N", "job"]
    arguments += ["-l", select, "-l", "place=scatter"] if select else []
    done = jobs("qsub", *arguments, script, **variables)
    assert done.returncode == 0, done.stderr
    number = done.stdout.split(".")[0]
    ended = jobs.finish(number)
    output = Path(jobs.folder, f"job.o{number}").read_text()
    assert ended["Exit_status"] == "0", output
    return number, output


def id_of(case):
    unit, script, variables, _ = case
    return " ".join([unit, script, *(variables[name] for name in ("SCRIPT", "TRACK") if name in variables)])


@pytest.mark.parametrize("case", SCRIPTS, ids=id_of)
def test_a_job_script_runs_on_a_pbs_as_it_is_released(case, jobs, one_worker):
    unit, script, variables, select = case
    if script == "run_rehearsal.sh":
        variables = variables | {"RUN": str(one_worker)}
    _, output = run(jobs, unit, script, variables, select)
    assert "HANDSON_NODE=" not in output and "Traceback" not in output, output
    if script == "run_doctor.sh":
        assert "reached by: sh, pbsdsh" in output and "BROKEN" not in output, output


@pytest.fixture(scope="module")
def one_worker(jobs):
    """The results of a job with one worker."""
    variables = {"OPTIONS": f"{SMALL} -o results/one"}
    run(jobs, "01_single_gpu", "run_single_gpu_training.sh", variables, None)
    return jobs.folder / "results/one"


@pytest.mark.skipif(frameworks.why_not() is not None, reason="there is no second environment")
@pytest.mark.parametrize(("script", "ranks", "select"), OF_FRAMEWORKS, ids=[script for script, *_ in OF_FRAMEWORKS])
def test_a_script_of_another_system_runs_there_too(script, ranks, select, jobs):
    gpus = " -g 0,1" if ranks == "none" and select == TWO_ON_ONE else ""
    variables = {"SCRIPT": script, "OPTIONS": f"{SMALL}{gpus}", "RANKS": ranks}
    _, output = run(jobs, "07_frameworks", "run_script.sh", variables, select)
    assert "Throughput: " in output, output
