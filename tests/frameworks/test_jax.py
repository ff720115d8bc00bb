"""JAX against the oracle: on however many devices, of one process or of several, its steps are those of the same
network in PyTorch, to which the parts of each batch are shown one after the other."""

import argparse
import socket
from dataclasses import replace

import numpy
import oracle
import pytest
import torch
from forked import Script, together

from handson.pytorch.model import ConvNet
from handson.training import data

pytestmark = pytest.mark.thorough
FOLDER = oracle.SOLUTIONS.parent / "jax"
SIZE, EPOCHS, TOTAL, RATE, TEST = 64, 2, 8, 0.01, 9


def sets(images):
    """A training set of so many images, and a test set."""
    everything = data.load_arrays("digits")[1]
    return [
        replace(everything, images=everything.images[part], labels=everything.labels[part])
        for part in (slice(images), slice(images, images + TEST))
    ]


def trained(name, devices, images, *comm):
    """The log of the script `name`, whose devices are there."""
    script, logs = oracle.solution(name, FOLDER), []
    words = ["-e", str(EPOCHS), "-b", str(TOTAL // devices), "--size", str(SIZE), "--lr", str(RATE)]
    args = oracle.options(FOLDER / f"{name}.py", words)
    script.results = argparse.Namespace(
        report=lambda args, throughput, images, seconds, log, evaluation: logs.extend(log)
    )
    script.train(*comm, args, *sets(images))
    return logs


def in_one_process(devices, images):
    from handson.jax import devices as of_course

    of_course.use(list(range(devices)))
    return trained("train_cifar_shard_map", devices, images)


def in_processes(port, rank, size, images):
    from handson.jax import devices as of_course

    import jax

    of_course.use([rank])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", size, rank)
    return trained("train_cifar_multi_process", size, images, argparse.Namespace(rank=rank, size=size))


def as_torch(parameters, statistics):
    """The ConvNet with JAX's parameters."""
    model, found = ConvNet(), []
    for block, of_block in zip(parameters["blocks"], statistics):
        found += [
            block["kernel"].transpose(3, 2, 0, 1),
            block["scale"],
            block["shift"],
            of_block["mean"],
            of_block["variance"],
            0,
        ]
    found += [parameters["dense"]["kernel"].T, parameters["dense"]["bias"]]
    model.load_state_dict(
        {name: torch.as_tensor(numpy.asarray(one)) for name, one in zip(model.state_dict(), found, strict=True)}
    )
    return model


def assert_right(log, parts, images):
    from handson.jax.model import initial

    orders = [numpy.random.RandomState([0, epoch]).permutation(images) for epoch in range(EPOCHS)]
    epochs = [
        [numpy.split(order[begin : begin + TOTAL], parts) for begin in range(0, images, TOTAL)] for order in orders
    ]
    found = numpy.array([[row["main/loss"], row["validation/main/loss"]] for row in log])
    assert found == pytest.approx(oracle.by_torch(as_torch(*initial(0)), epochs, *sets(images), SIZE, RATE), rel=1e-3)


@pytest.mark.parametrize(("devices", "images"), [(1, 24), (2, 20), (4, 24)])
def test_devices_of_one_process_make_the_steps_of_one_big_batch(devices, images):
    """20 images in batches of 8 leave 4 for the last one."""
    [log] = together(in_one_process, (devices, images))
    assert_right(log, devices, images)
    assert 0 < log[0]["first_step"] <= log[0]["training_time"] < log[1]["training_time"]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_processes_make_the_steps_of_one_big_batch(size):
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    logs = together(in_processes, *((port, rank, size, 24) for rank in range(size)))
    assert logs[1:] == [[]] * (size - 1)  # rank 0 reports
    assert_right(logs[0], size, 24)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-g", "0,1,2,3,4,5,6", "-b", "1"], "-b: batches of 1 for each of 7 devices leave 2 of 1,500 images for"),
        (["-g", "0,8"], "-g: there is no GPU 8; JAX sees those from 0 to 7"),
        (["-g", "0,0"], "-g: JAX has one device for each GPU; name each id once"),
    ],
)
def test_what_cannot_work_ends_in_a_sentence(words, sentence, tmp_path):
    script = Script(FOLDER / "train_cifar_shard_map.py", tmp_path, "-e", 1, "--size", 32, "-o", "out", *words).ended()
    assert script.status == 2 and sentence in script.errors and len(script.errors.splitlines()) == 1
