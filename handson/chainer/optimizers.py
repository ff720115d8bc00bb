"""ChainerMN's create_multi_node_optimizer with double buffering on CPUs too: it computes while gradients travel."""
import atexit
import weakref

import chainermn
from chainermn.communicators.pure_nccl_communicator import PureNcclCommunicator
from chainermn.optimizers import _DoubleBufferingOptimizer

from handson.chainer.mean_gradients import MeanGradients


def create_multi_node_optimizer(actual_optimizer, communicator, double_buffering=False, zero_fill=True):
    """A Chainer optimizer that updates with the mean of all ranks' gradients; ChainerMN's arguments.

    With double_buffering an update applies the mean of the batch before, whose all-reduce ran while this batch was computed.
    The first update only makes parameters equal, the second only starts an all-reduce: both as ChainerMN does on GPUs.
    """
    if double_buffering and not isinstance(communicator, PureNcclCommunicator):
        return DoubleBufferingOptimizer(actual_optimizer, communicator, zero_fill)
    return chainermn.create_multi_node_optimizer(actual_optimizer, communicator, double_buffering, zero_fill)


class DoubleBufferingOptimizer(_DoubleBufferingOptimizer):
    """ChainerMN's, with a non-blocking all-reduce of MPI in place of a CUDA stream."""

    def __init__(self, actual_optimizer, communicator, zero_fill):
        # ChainerMN's optimizers pass all other attributes on to the actual optimizer.
        attributes = vars(self)
        attributes.update(actual_optimizer=actual_optimizer, communicator=communicator, zero_fill=zero_fill,
                          needs_update=False, communicated_target=None, target_params_list=[[], []],
                          in_flight=None, mpi_comm=communicator.mpi_comm.Dup())
        weak = weakref.ref(self)
        atexit.register(lambda: weak() and weak().wait())  # MPI cannot end with an all-reduce in flight

    def multi_node_mean_grad_async(self):
        dtype = getattr(self.communicator, "allreduce_grad_dtype", None)
        vars(self)["in_flight"] = MeanGradients(self.mpi_comm, self.communicated_target, self.zero_fill, dtype)
        self.in_flight.start()

    def wait(self):
        """Returns when no all-reduce is in flight."""
        if self.in_flight is not None:
            self.in_flight.wait()
            vars(self)["in_flight"] = None
