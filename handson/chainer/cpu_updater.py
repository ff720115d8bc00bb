"""Chainer's MultiprocessParallelUpdater for a machine without GPUs. Scripts import it from
``handson.chainer.updaters``.

Every device except the main one has a worker process. In every step, each device takes a batch from its own iterator
and writes its gradients to shared memory; the main device adds them up, updates, and sends the new parameters to
all.
"""

import math
import os
import pickle
import warnings
from multiprocessing import get_context, util
from numbers import Integral

from handson.chainer import shared_arrays, threads, worker
from handson.chainer.worker_handle import WorkerHandle, end_workers

import chainer
from chainer import optimizers
from chainer.dataset import convert
from chainer.training.updaters import StandardUpdater

from handson.errors import TrackError
from handson.profiling import recording
from handson.training import progress, virtual_gpus
from handson.training.banner import name_devices
from handson.training.worker_processes import deaf_to_ctrl_c
from handson.words import counted, there


class MultiprocessParallelUpdater(StandardUpdater):
    """Data-parallel updates on several cores: Chainer's constructor and semantics, with virtual GPUs as devices.

    iterators: one for each device, with equal numbers of samples and equal batch sizes. devices: name -> id with a
    ``"main"``, or a list whose first element is the main device. The optimizer's learning rate is divided by the number
    of devices, because gradients are summed. As in Chainer, reports come only from the main device. Unlike Chainer's, a
    snapshot contains the position of every iterator. Raises TrackError for invalid arguments, and WorkerError in an
    update after a worker has failed.
    """

    step_limit = None  # seconds after which a worker counts as hanging in a step; None means the value of --patience

    def __init__(self, iterators, optimizer, converter=convert.concat_examples, devices=None, auto_new_epoch=True):
        self._devices = _read_devices(devices)
        _check_iterators(iterators, self._devices)
        _divide_step(optimizer, len(self._devices))
        super().__init__(iterators[0], optimizer, converter=converter, auto_new_epoch=auto_new_epoch)
        self._others = dict(zip(list(self._devices)[1:], iterators[1:]))  # all devices except main
        self._workers = None  # WorkerHandles in the order of _others, after the start
        self._finalized = False

    @staticmethod
    def available():
        """Return True: this class needs only CPUs."""
        return True

    def setup_workers(self):
        """Start the workers. The first update calls this."""
        if self._workers is not None:
            return
        if self._finalized:
            raise RuntimeError("this updater has been finalized: create a new one")
        model = self.get_optimizer("main").target
        self._initialize_parameters(model)
        model.cleargrads()
        context = get_context()
        arrays = [parameter.array for parameter in worker.parameters(model)]
        memory = shared_arrays.allocate(context, arrays)
        self._shared_parameters = shared_arrays.views(memory, arrays)
        self._hand_out_parameters()
        cores, blas_threads = virtual_gpus.cores(), threads.set_blas_threads(1)
        recording.identify(0, len(self._devices))
        self._workers = []
        self._to_undo = self._workers, cores, blas_threads
        # At exit, this must run before multiprocessing waits for the workers, which wait for this process.
        self._at_exit = util.Finalize(self, _undo, (0, *self._to_undo), exitpriority=10)
        try:
            with deaf_to_ctrl_c():
                for index, (name, iterator) in enumerate(self._others.items(), start=1):
                    self._workers.append(
                        WorkerHandle(
                            context,
                            name,
                            index,
                            self._devices[name],
                            self._workers,
                            memory,
                            arrays,
                            (model, self.converter, iterator),
                        )
                    )
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            self._stop(limit=0)
            raise TrackError(
                f"the model, converter or iterator cannot be sent to the worker of device {name!r} ({error}): define"
                " its classes and functions at the top level of a module"
            ) from None
        virtual_gpus.pin(self._devices["main"])  # pinned last, because workers inherit the cores of this process

    def update_core(self):
        """Run one step: gradients on all devices, their sum, an update on main, and the new parameters to all."""
        self.setup_workers()
        iterator, optimizer = self.get_iterator("main"), self.get_optimizer("main")
        self._ask("update")
        worker.compute_gradients(optimizer.target, self.converter, iterator)
        with recording.span("communication", worker.SUM):
            self._answers()
            for one in self._workers:
                for parameter, addend in zip(worker.parameters(optimizer.target), one.gradients):
                    parameter.grad += addend
        optimizer.update()
        self._hand_out_parameters()
        if self.auto_new_epoch and iterator.is_new_epoch:
            optimizer.new_epoch(auto=True)

    def serialize(self, serializer):
        """Save or load what StandardUpdater does, and the position of each worker's iterator."""
        super().serialize(serializer)
        if self._workers is None:  # workers that start later receive these iterators
            try:
                for name, iterator in self._others.items():
                    iterator.serialize(serializer["iterator:" + name])
            except KeyError as error:
                raise TrackError(
                    f"the snapshot has no {error.args[0]}, because it is from a run with devices other than"
                    f" {', '.join(self._devices)}"
                ) from None
        elif isinstance(serializer, chainer.Deserializer):
            raise TrackError("a snapshot must be loaded before the first update, but the workers have already started")
        else:
            self._ask("iterator")
            for name, state in zip(self._others, self._answers()):
                for key, value in state.items():
                    serializer["iterator:" + name](key, value)

    def finalize(self):
        """End the workers, and restore the cores of the main process."""
        self._finalized = True
        self._stop(limit=5)
        super().finalize()

    def _initialize_parameters(self, model):
        """Initialise parameters whose shapes depend on the first input, with a sample of the main iterator."""
        if any(parameter.array is None for parameter in model.params()):
            # test mode ensures that only shapes and initial values change
            with chainer.using_config("train", False), chainer.no_backprop_mode(), worker.unheard_reports(model):
                worker.compute_loss(model, self.converter, [self.get_iterator("main").dataset[0]])

    def _hand_out_parameters(self):
        for parameter, shared in zip(worker.parameters(self.get_optimizer("main").target), self._shared_parameters):
            shared[...] = parameter.array

    def _ask(self, order):
        self._or_stop(lambda one: one.ask(order))

    def _answers(self):
        return self._or_stop(lambda one: one.answer(self.step_limit or progress.limit or math.inf))

    def _or_stop(self, action):
        try:
            return [action(one) for one in self._workers]
        except BaseException:
            self._stop(limit=0)
            raise

    def _stop(self, limit):
        if self._workers is None:
            return
        self._at_exit.cancel()
        self._workers, self._finalized = None, True
        _undo(limit, *self._to_undo)


def _undo(limit, workers, cores, blas_threads):
    """End the workers, by force after ``limit`` seconds, and restore the cores and threads of the main process."""
    end_workers(workers, limit)
    os.sched_setaffinity(0, cores)
    if blas_threads:
        threads.set_blas_threads(blas_threads)


def _read_devices(devices):
    """Return name -> id, main first. Raises TrackError."""
    if isinstance(devices, (list, tuple)) and devices:
        devices = name_devices(devices)
    if not isinstance(devices, dict):
        raise TrackError(f"devices must be names and ids such as {{'main': 0, 'gpu1': 1}}, not {devices!r}")
    if "main" not in devices:
        raise TrackError(
            f"devices must have one called 'main', which updates the parameters, but they are {list(devices)}"
        )
    for name, gpu in devices.items():
        if not isinstance(gpu, Integral) or gpu < 0:
            raise TrackError(f"device {name!r} must have an id of 0 or more, not {gpu!r}")
    return {"main": devices["main"], **devices}


def _check_iterators(iterators, devices):
    if len(iterators) != len(devices):
        raise TrackError(
            f"there must be one iterator per device, but {there(len(iterators), 'iterator')} and "
            f"{counted(len(devices), 'device')}: split the data set with split_dataset_n_random(dataset,"
            f" {len(devices)})"
        )
    for what, numbers in (
        ("data sets of different lengths", [len(iterator.dataset) for iterator in iterators]),
        ("different batch sizes", [getattr(iterator, "batch_size", None) for iterator in iterators]),
    ):
        if len(set(numbers)) > 1:
            raise TrackError(
                f"the iterators have {what}: {', '.join(map(str, numbers))}; all devices must do the same work"
            )


def _divide_step(optimizer, devices):
    """Scale the optimizer so that a step with the devices' summed gradients equals one with their mean, and warn as
    Chainer does."""
    if isinstance(optimizer, (optimizers.Adam, optimizers.AdaGrad, optimizers.RMSprop)):
        name, value = "eps", optimizer.eps * devices
    elif isinstance(optimizer, (optimizers.RMSpropGraves, optimizers.AdaDelta)):
        name, value = "eps", optimizer.eps * devices**2
    elif hasattr(optimizer, "lr"):
        name, value = "lr", optimizer.lr / devices
    else:
        return
    setattr(optimizer, name, value)
    warnings.warn(
        f"optimizer.{name} is changed to {value} by MultiprocessParallelUpdater for new batch size: the gradients of"
        f" its {devices} devices are added up, not averaged, so an update must be scaled down to be that of their"
        " mean.",
        stacklevel=3,
    )
