"""How each script of the course is run for some steps: its path in solutions/ -> what starts it, and its options."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MPIEXEC = str(Path(sys.executable).with_name("mpiexec"))
ALONE, RANKS, THREE, FOUR = (), *((MPIEXEC, "-n", number) for number in "234")

SHORT = "-e 1 --size 64"
METHODS = "--method all -e 1"
SCRIPTS = {
    "01_single_gpu/pytorch/train_cifar_single_gpu.py": (ALONE, SHORT),
    "01_single_gpu/chainer/train_cifar_single_gpu.py": (ALONE, SHORT),
    "02_multi_gpu/pytorch/train_cifar_multi_gpu.py": (ALONE, SHORT),
    "02_multi_gpu/chainer/train_cifar_multi_gpu.py": (ALONE, SHORT),
    "03_multi_node/pytorch/train_cifar_multi_node.py": (RANKS, SHORT),
    "03_multi_node/chainer/train_cifar_multi_node.py": (RANKS, SHORT),
    "03_multi_node/chainer/train_mnist.py": (RANKS, "-e 1"),
    "04_profiling/pytorch/train_steps.py": (ALONE, SHORT),
    "04_profiling/pytorch/slow_loading.py": (ALONE, "-e 1"),
    "04_profiling/pytorch/uneven_work.py": (ALONE, "-e 1"),
    "04_profiling/pytorch/waiting_every_step.py": (ALONE, "-e 1"),
    "05_communication/pytorch/all_reduce.py": (RANKS, "--largest 4096"),
    "05_communication/pytorch/train_hooks.py": (RANKS, METHODS),
    "05_communication/pytorch/train_data_parallel.py": (RANKS, METHODS),
    "05_communication/pytorch/train_local_sgd.py": (RANKS, METHODS),
    "05_communication/pytorch/train_parameter_server.py": (THREE, METHODS),
    "05_communication/pytorch/train_restarts.py": (RANKS, "-e 1"),
    "05_communication/pytorch/train_cntk.py": (RANKS, "-e 1"),
    "05_communication/chainer/train_hooks.py": (RANKS, METHODS),
    "06_model_parallel/pytorch/train_memory.py": (ALONE, "-e 1"),
    "06_model_parallel/pytorch/train_mesh.py": (RANKS, METHODS),
    "06_model_parallel/pytorch/train_pipeline.py": (RANKS, METHODS),
    "06_model_parallel/pytorch/train_sharded.py": (RANKS, METHODS),
    "06_model_parallel/chainer/train_pipeline.py": (RANKS, METHODS),
    "07_frameworks/pytorch/train_cifar_data_parallel.py": (ALONE, SHORT),
    "09_attention_and_experts/pytorch/train_experts.py": (RANKS, METHODS),
    "10_challenge/pytorch/train_challenge.py": (FOUR, ""),
}
ON_CPUS = (  # they use no GPU, wherever they run
    "all_reduce.py",
    "02_multi_gpu/chainer",
    "05_communication/chainer",
    "06_model_parallel/chainer",
)
# with packages of the second environment, by its name in `import`
OF_FRAMEWORKS = {
    "07_frameworks/accelerate/train_cifar_accelerate.py": (RANKS, SHORT, "accelerate"),
    "07_frameworks/jax/train_cifar_multi_process.py": (RANKS, SHORT, "optax"),
    "07_frameworks/jax/train_cifar_shard_map.py": (ALONE, SHORT, "optax"),
    "07_frameworks/lightning/train_cifar_lightning.py": (RANKS, SHORT, "lightning"),
    "07_frameworks/tensorflow/train_cifar_mirrored.py": (ALONE, SHORT, "tensorflow"),
    "07_frameworks/tensorflow/train_cifar_multi_worker.py": (RANKS, SHORT, "tensorflow"),
    "07_frameworks/tensorflow/train_cifar_parameter_server.py": (ALONE, SHORT, "tensorflow"),
    "07_frameworks/tensorflow/train_cifar_single_gpu.py": (ALONE, SHORT, "tensorflow"),
}


def command(script, out, *more):
    """The words that run a script, with its results in the folder `out`."""
    start, options = (SCRIPTS | OF_FRAMEWORKS)[script][:2]
    return [*start, sys.executable, str(ROOT / "solutions" / script), *options.split(), "-o", str(out), *more]
