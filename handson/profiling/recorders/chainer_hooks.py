"""Hooks with which a Chainer process reports its functions (a TimerHook), batches, updates, steps and collectives to a
recorder."""

import functools
import time

import chainer
from chainer.dataset import convert
from chainer.function_hooks import TimerHook
from chainer.iterators import SerialIterator
from chainer.training.updaters import StandardUpdater

from handson.profiling import recording

COLLECTIVES = (
    "multi_node_mean_grad",
    "bcast_data",
    "bcast_obj",
    "allgather",
    "allreduce",
    "allreduce_obj",
    "alltoall",
    "gather_obj",
)


class SpanHook(TimerHook):
    """Chainer's TimerHook, which also records when functions started."""

    def __init__(self, recorder):
        super().__init__()
        self.recorder = recorder

    def _postprocess(self, function):
        super()._postprocess(function)
        end = time.time_ns()  # TimerHook has already waited for the GPU
        name, seconds = self.call_history.pop()
        if self.recorder.state == "recording":
            self.recorder.add(end - round(1e9 * seconds), end, name, "compute")


def install(recorder):
    """Report all events except collectives of this process, and of processes forked from it, to `recorder`."""
    chainer.get_function_hooks()[SpanHook.name] = SpanHook(recorder)
    SerialIterator.next = _recorded(SerialIterator.next, "loading", "data loading: iterator")
    convert._call_converter = _recorded(convert._call_converter, "loading", "data loading: converter")
    chainer.UpdateRule.update = _recorded(chainer.UpdateRule.update, "compute", "UpdateRule.update")
    install_steps(recorder)


def install_steps(recorder):
    """Report the start of each update to `recorder`, as the start of a step."""
    update = StandardUpdater.update

    @functools.wraps(update)
    def recorded(updater):
        recorder.step()
        update(updater)

    StandardUpdater.update = recorded


def watch(communicator):
    """Report the rank and the collectives of a ChainerMN communicator. (It forbids setting attributes, hence
    `vars`.)"""
    recording.identify(communicator.rank, communicator.size)
    for name in COLLECTIVES:
        vars(communicator)[name] = _recorded(getattr(communicator, name), "communication", f"mpi:{name}")


def _recorded(function, category, words):
    """Return the function with a span around each call."""

    @functools.wraps(function)
    def recorded(*arguments, **options):
        with recording.span(category, words):
            return function(*arguments, **options)

    return recorded
