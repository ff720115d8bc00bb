"""The strategies of several processes against the oracle: 1, 2 and 4 workers make the steps of one process with all
images of each step."""

import argparse
import json
import os
import socket

import numpy
import oracle
import pytest
from forked import together

pytestmark = pytest.mark.thorough


def addresses(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return found


def multi_worker(workers, index):
    """What a worker of a MultiWorkerMirroredStrategy has trained, and what `evaluator` finds in 9 images with batches
    of 4 for each worker."""
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}})
    from handson.tensorflow import workers as of_course

    import tensorflow as tf

    comm = argparse.Namespace(rank=index, size=len(workers), intra_rank=index)
    of_course.use(comm, argparse.Namespace(gpu=list(range(len(workers)))))
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    found = oracle.loop(strategy, oracle.images()[0][:23], 8)
    with strategy.scope():
        model = oracle.network()
    return *found, of_course.evaluator(strategy, model, Few(), 4)()


class Few:
    """A test set of 9 images."""

    images, labels = (one[:9] for one in oracle.images())

    def __len__(self):
        return 9


@pytest.mark.parametrize("number", [1, 2, 4])
def test_workers_of_a_multi_worker_strategy_make_the_steps_of_one_big_batch(number):
    """A step of 8 images on all of them, the last one of an epoch of 7: each image once an epoch, on one worker."""
    workers = addresses(number)
    found = together(multi_worker, *((workers, index) for index in range(number)))
    used = [numpy.concatenate(of_step) for of_step in zip(*(of_worker for _, of_worker, _ in found))]
    assert [len(of_step) for of_step in used] == [8, 8, 7] * 2
    assert sorted(numpy.concatenate(used[:3])) == sorted(numpy.concatenate(used[3:])) == list(range(23))
    assert list(numpy.concatenate(used[:3])) != list(numpy.concatenate(used[3:]))
    [(right, evaluated)] = together(of_one_process, (used,))
    assert max(numpy.abs(weights - right).max() for weights, _, _ in found) < 1e-5
    assert all(of_worker == pytest.approx(evaluated, rel=1e-5) for _, _, of_worker in found)


def of_one_process(used):
    from handson.tensorflow import reports

    everything = oracle.images()[0]
    right, _ = oracle.by_hand([(everything[numbers], numbers % 10) for numbers in used])
    return right, reports.evaluator(oracle.network(), Few(), 4)()


def parameter_server(number, epochs):
    """The losses that the script reports, with a chief, a parameter server and so many workers in one process; and
    those that are right."""

    from handson.tensorflow.model import convnet

    import keras
    import tensorflow as tf

    from handson.training import data

    cluster = {"chief": addresses(1), "ps": addresses(1), "worker": addresses(number)}
    settings = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=4)
    tasks = [("ps", 0), *(("worker", index) for index in range(number))]
    servers = [
        tf.distribute.Server(cluster, job_name=role, task_index=index, protocol="grpc", config=settings)
        for role, index in tasks
    ]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer="grpc"
    )
    script = oracle.solution("train_cifar_parameter_server")
    everything = data.load_arrays("digits")[1]  # the smaller of the two sets
    words = ["-e", str(epochs), "-b", str(len(everything)), "--size", "32", "--lr", str(oracle.RATE)]
    args = oracle.options(oracle.SOLUTIONS / "train_cifar_parameter_server.py", words)
    losses = []
    script.results = argparse.Namespace(
        report=lambda args, throughput, images, seconds, log, evaluation: losses.extend(row["main/loss"] for row in log)
    )
    script.train(tf.distribute.ParameterServerStrategy(resolver), args, everything, everything)
    assert len(servers) == number + 1

    def make():
        keras.utils.set_random_seed(args.seed)
        return convnet(everything.images.shape[1:], args.size, len(everything.classes))

    return losses, oracle.by_hand([(everything.images, everything.labels)] * epochs, make=make)[1]


@pytest.mark.parametrize("number", [1, 2, 4])
def test_workers_of_a_parameter_server_make_the_steps_of_one_process_where_one_waits_for_the_other(number):
    """With all images in a batch an epoch is a step, which the chief waits for. Otherwise workers don't wait: what they
    then compute is not defined."""
    [(losses, right)] = together(parameter_server, (number, 4))
    # steps amplify rounding: where threads added up in another order, the third loss differed by 2e-4
    assert losses == pytest.approx(right, rel=1e-3)
    assert right[-1] < 0.9 * right[0]
