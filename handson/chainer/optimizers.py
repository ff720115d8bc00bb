"""ChainerMN's create_multi_node_optimizer, with double buffering also on CPUs."""

import atexit
import copy
import weakref

from handson.chainer.mean_gradients import MeanGradients

import chainer
import numpy
from chainermn.communicators.pure_nccl_communicator import PureNcclCommunicator
from chainermn.optimizers import _DoubleBufferingOptimizer, _MultiNodeOptimizer
from chainermn.optimizers import create_multi_node_optimizer as create_chainermns


def create_multi_node_optimizer(actual_optimizer, communicator, double_buffering=False, zero_fill=True):
    """Return a Chainer optimizer that updates with the mean of all ranks' gradients. The arguments are ChainerMN's.

    With double_buffering, an update uses the mean of the previous batch, whose all-reduce ran during the computation of
    this batch. The first update only makes the parameters equal, and the second only starts an all-reduce, as in
    ChainerMN on GPUs. Loading a snapshot also makes the parameters equal, so a resumed run loses no update (except with
    double buffering on GPUs).
    """
    if not double_buffering:
        return MultiNodeOptimizer(actual_optimizer, communicator, zero_fill)
    if isinstance(communicator, PureNcclCommunicator):
        return create_chainermns(actual_optimizer, communicator, double_buffering, zero_fill)
    return DoubleBufferingOptimizer(actual_optimizer, communicator, zero_fill)


class MultiNodeOptimizer(_MultiNodeOptimizer):
    """ChainerMN's optimizer, except that the first update after loading a snapshot uses its gradients, because all
    ranks already have equal parameters."""

    def serialize(self, serializer):
        self.actual_optimizer.serialize(serializer)
        if isinstance(serializer, chainer.Deserializer):
            self.is_changed(self.target)  # makes ChainerMN note the current parameters


class DoubleBufferingOptimizer(_DoubleBufferingOptimizer):
    """ChainerMN's optimizer, with a non-blocking MPI all-reduce instead of a CUDA stream. Snapshots contain the
    gradients in flight."""

    def __init__(self, actual_optimizer, communicator, zero_fill):
        # ChainerMN's optimizers pass all other attributes on to the actual optimizer.
        attributes = vars(self)
        attributes.update(
            actual_optimizer=actual_optimizer,
            communicator=communicator,
            zero_fill=zero_fill,
            needs_update=False,
            communicated_target=None,
            target_params_list=[[], []],
            in_flight=None,
            mpi_comm=communicator.mpi_comm.Dup(),
        )
        weak = weakref.ref(self)
        atexit.register(lambda: weak() and weak().wait())  # MPI cannot end with an all-reduce in flight

    def multi_node_mean_grad_async(self):
        dtype = getattr(self.communicator, "allreduce_grad_dtype", None)
        vars(self)["in_flight"] = MeanGradients(self.mpi_comm, self.communicated_target, self.zero_fill, dtype)
        self.in_flight.start()

    def serialize(self, serializer):
        self.actual_optimizer.serialize(serializer)
        self.wait()
        if isinstance(serializer, chainer.Deserializer):
            double = copy.deepcopy(self.target)
            vars(self).update(
                communicated_target=double,
                target_params_list=[sorted(model.namedparams()) for model in (self.target, double)],
            )
        vars(self)["needs_update"] = serializer("needs_update", self.needs_update)
        for name, parameter in self.target_params_list[1]:
            if parameter.array is not None:
                gradient = numpy.zeros_like(parameter.array) if parameter.grad is None else parameter.grad
                parameter.grad = serializer(f"in_flight{name}", gradient)

    def wait(self):
        """Wait until no all-reduce is in flight."""
        if self.in_flight is not None:
            self.in_flight.wait()
            vars(self)["in_flight"] = None
