"""The worker process of our MultiprocessParallelUpdater, and the gradient computation that it shares with the main
process."""

import contextlib
import random
import sys
import traceback

from handson.chainer import shared_arrays, threads

import chainer
import numpy
from chainer.dataset import convert
from chainer.serializers import DictionarySerializer

from handson.profiling import recording
from handson.training import progress, virtual_gpus
from handson.training.worker_processes import end_with_parent

SUM = "sum of gradients"  # the name in a recording; in a worker it includes waiting until main has used the gradients


def parameters(model):
    """Return the model's parameters in the order of their names, which is the same in every process."""
    return [parameter for _, parameter in sorted(model.namedparams()) if parameter.array is not None]


def compute_loss(model, converter, batch):
    """Return the model's loss for a list of samples."""
    arrays = convert._call_converter(converter, batch, None)
    if isinstance(arrays, tuple):
        return model(*arrays)
    if isinstance(arrays, dict):
        return model(**arrays)
    return model(arrays)


def compute_gradients(model, converter, iterator):
    """Compute the gradients of the iterator's next batch, with zeros for a parameter that the loss does not use."""
    loss = compute_loss(model, converter, iterator.next())
    model.cleargrads()
    loss.backward()
    for parameter in parameters(model):
        if parameter.grad is None:
            parameter.grad = numpy.zeros_like(parameter.array)


@contextlib.contextmanager
def unheard_reports(model):
    """Context manager in which the model reports its loss as in training, to nobody."""
    reporter = chainer.Reporter()
    reporter.add_observer("main", model)
    reporter.add_observers("main", model.namedlinks(skipself=True))
    with reporter.scope({}):
        yield


def work(index, gpu, pipe, ends_of_main, note, model, converter, iterator, parameter_memory, gradient_memory):
    """Run the worker of device number ``index``: answer "update" and "iterator" until main sends "stop" or has ended.

    Every answer is (result, failure); failure is None or (what happened, its traceback).
    """
    # workers inherit these by fork, and would not notice the end of main while one of them is open
    for end in ends_of_main:
        end.close()
    end_with_parent()
    if note:
        progress.watched_by(note)
        progress.begin(progress.limit)
    virtual_gpus.pin(gpu)
    threads.set_blas_threads(1)
    _draw_other_random_numbers(index)
    recording.forked(index)
    arrays = [parameter.array for parameter in parameters(model)]
    shared = shared_arrays.views(parameter_memory, arrays), shared_arrays.views(gradient_memory, arrays)
    try:
        while (order := _next_order(pipe)) != "stop":
            if order == "update":
                recording.step()
            pipe.send((_obey(order, model, converter, iterator, *shared), None))
        iterator.finalize()
        recording.finish()
    except BaseException as error:  # includes SystemExit
        what = f"failed with {type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            pipe.send((None, (what, traceback.format_exc())))
        sys.exit(1)


def _obey(order, model, converter, iterator, shared_parameters, shared_gradients):
    if order == "iterator":
        serializer = DictionarySerializer()
        iterator.serialize(serializer)
        return serializer.target
    for parameter, value in zip(parameters(model), shared_parameters):
        parameter.array[...] = value
    with unheard_reports(model):
        compute_gradients(model, converter, iterator)
    for parameter, value in zip(parameters(model), shared_gradients):
        value[...] = parameter.grad
    return None


def _next_order(pipe):
    try:
        with recording.span("communication", SUM):
            return pipe.recv()
    except EOFError:  # main has ended
        return "stop"


def _draw_other_random_numbers(index):
    """Seed the random numbers of dropout and other functions with main's random state and the device's number:
    reproducible, but different on each device."""
    _, state, position, *_ = numpy.random.get_state()
    seed = [*state[:8], position, index]
    numpy.random.seed(seed)
    random.seed(repr(seed))
