"""The scripts of the other systems on a PBS as it is released."""

import pytest
from released import MARKS, released, run

ON_ONE, FOUR, TWO_ON_ONE = (f"select={nodes}:ngpus={gpus}:mpiprocs={gpus}" for nodes, gpus in ((1, 1), (2, 2), (1, 2)))
SCRIPTS = [
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
pytestmark = MARKS


@pytest.fixture(scope="module")
def jobs():
    with released() as jobs:
        yield jobs


@pytest.mark.parametrize(("script", "ranks", "select"), SCRIPTS, ids=[script for script, *_ in SCRIPTS])
def test_a_script_of_another_system_runs_on_a_pbs_as_it_is_released(script, ranks, select, jobs):
    gpus = " -g 0,1" if select == TWO_ON_ONE else ""
    variables = {"SCRIPT": script, "OPTIONS": f"--epoch 1 --size 32{gpus}", "RANKS": ranks}
    assert "Throughput: " in run(jobs, "07_frameworks", "run_script.sh", variables, select)
