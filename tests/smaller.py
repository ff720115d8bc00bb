"""The course's notebooks with less to compute than a student's."""

import numpy

from handson.training import data

SETTINGS = {
    'OPTIONS = ""': 'OPTIONS = "--epoch 1 --size 32"',
    'OPTIONS = "--epoch 2 --size 64"': 'OPTIONS = "--epoch 1 --size 32"',
    '--epoch 1"': '--epoch 1 --size 32"',
    "SIZE = 256": "SIZE = 64",
    "SEEDS = 4": "SEEDS = 2",
    '"1-KB 300-KB 600-KB one-bucket torch-ddp"': '"1-KB 600-KB torch-ddp"',
    "--method {BUCKETS} --epoch 1 --batchsize 50": "--method {BUCKETS} --epoch 1 --batchsize 250",
    'for method in ("one-bucket", "600-KB")': 'for method in ("600-KB",)',
    "--largest 4194304": "--largest 524288",
    "local-sgd-12 local-sgd-36 block-momentum-12": "local-sgd-12",
    "--method asynchronous --epoch 3": "--method asynchronous --epoch 1",
    'f"-e 3 {options}"': 'f"-e 1 {options}"',
    '"float16": "--communicator hierarchical --allreduce-grad-dtype float16",': "",
    "STEPS = 20": "STEPS = 6",
    "SEEDS, EPOCHS = 2, 6": "SEEDS, EPOCHS = 1, 1",
    "epochs=6": "epochs=1",
    "--method all --epoch 3": "--method all --epoch 1",
    "interval=2, count=4": "interval=1, count=2",
    '"none", "100mbit", "20mbit"': '"none", "20mbit"',
    "accumulate-4 accumulate-8": "accumulate-4",
    "checkpoint torch-checkpoint ": "checkpoint ",
    'sharded[4] = run("train_sharded.py", "sharded_4", options, ranks=4)': "pass",
    'trained["1 bit"] = session("cntk_1_bit", "--bits 1 --warm-up 1500")': "pass",
    "RATES = (800, 400, 160)": "RATES = (800, 160)",
    '    ("pytorch/train_cifar_data_parallel.py", 1, "none"),\n': "",
    '    ("lightning/train_cifar_lightning.py", 1, "mpiexec"),\n': "",
    '    ("accelerate/train_cifar_accelerate.py", 1, "mpiexec"),\n': "",
    '    ("jax/train_cifar_shard_map.py", 1, "none"),\n': "",
    '    ("../02_multi_gpu/pytorch/train_cifar_multi_gpu.py", 1, "none"),\n': "",
    '    ("tensorflow/train_cifar_multi_worker.py", 1, "mpiexec"),\n': "",
}


def smaller(source):
    """The source of a notebook, or of a cell, with settings that take less time."""
    for setting, less in SETTINGS.items():
        source = source.replace(setting, less)
    return source


def few_images(folder, train=480, test=60):
    """Write a data set "digits" with the first of its images into `folder`: as HANDSON_DATA, it replaces the
    course's."""
    path, entry = data.find("digits")
    counts = {"train": train, "test": test}
    arrays = {
        name: array[: counts.get(name.partition("_")[0])] if array.ndim else array
        for name, array in data.read(path, entry).items()
    }
    folder.mkdir()
    numpy.savez(folder / "digits.npz", **arrays)
    (folder / "datasets.toml").write_text('[digits]\ntitle = "digits"\n')
