"""Every job script of the course on a PBS as it is released."""

import pytest
from released import MARKS, released, run

SMALL = "--epoch 1 --size 32"
ON_ONE, FOUR = "select=1:ngpus=1:mpiprocs=1", "select=2:ngpus=2:mpiprocs=2"
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
    *(
        ("09_attention_and_experts", "run_script.sh", {"SCRIPT": script, "OPTIONS": options}, None)
        for script, options in (("attention.py", "--tokens 64"), ("train_experts.py", "--epoch 1 -b 120 --blocks 1"))
    ),
    ("10_challenge", "run_challenge.sh", {"OPTIONS": "--method plain"}, None),
]
pytestmark = MARKS


@pytest.fixture(scope="module")
def jobs():
    with released() as jobs:
        yield jobs


def id_of(case):
    unit, script, variables, _ = case
    return " ".join([unit, script, *(variables[name] for name in ("SCRIPT", "TRACK") if name in variables)])


@pytest.mark.parametrize("case", SCRIPTS, ids=id_of)
def test_a_job_script_runs_on_a_pbs_as_it_is_released(case, jobs, one_worker):
    unit, script, variables, select = case
    if script == "run_rehearsal.sh":
        variables = variables | {"RUN": str(one_worker)}
    output = run(jobs, unit, script, variables, select)
    if script == "run_doctor.sh":
        assert "reached by: sh, pbsdsh" in output and "BROKEN" not in output, output


@pytest.fixture(scope="module")
def one_worker(jobs):
    """The results of a job with one worker."""
    variables = {"OPTIONS": f"{SMALL} -o results/one"}
    run(jobs, "01_single_gpu", "run_single_gpu_training.sh", variables)
    return jobs.folder / "results/one"
