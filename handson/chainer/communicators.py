"""ChainerMN's create_communicator for the lecture's names on any machine. If a communicator cannot run, another one
replaces it, and a line explains why.

Chainer's own communicators need GPUs, except ``naive``. This module adds the features that ``naive`` lacks on CPUs:
gradients that are sent as float16, a check that all ranks have the same model, and the intra_rank of virtual nodes.
"""

from handson.chainer import devices
from handson.chainer.mean_gradients import MeanGradients

import chainer
import numpy
from chainermn import communicators, nccl
from chainermn.communicators.flat_communicator import FlatCommunicator
from chainermn.communicators.naive_communicator import NaiveCommunicator
from chainermn.communicators.non_cuda_aware_communicator import NonCudaAwareCommunicator
from mpi4py import MPI

from handson.cluster.nodes import current_node
from handson.errors import TrackError
from handson.profiling import recording
from handson.training import all_ranks, virtual_gpus

NAMES = ("hierarchical", "flat", "two_dimensional", "single_node", "pure_nccl", "non_cuda_aware", "naive")
GONE = ("hierarchical", "two_dimensional", "single_node")  # removed in Chainer 7


def create_communicator(communicator_name="hierarchical", mpi_comm=None, allreduce_grad_dtype=None):
    """Return the communicator for a name of the lecture. If another one replaces it, rank 0 prints a line.

    mpi_comm: an mpi4py communicator, or None for all ranks. allreduce_grad_dtype: None, "float16" or "float32", the
    data type in which gradients are sent. The result's ``name`` is that of the actual communicator. From now on, all
    ranks end together (``all_ranks``). Raises TrackError for an unknown name or type.
    """
    mpi_comm = MPI.COMM_WORLD if mpi_comm is None else mpi_comm
    all_ranks.install()
    has_gpus, shared = _gpus(mpi_comm)
    runs, why = choose(communicator_name, allreduce_grad_dtype, has_gpus, shared)
    if runs == "naive":
        devices.take_virtual_gpus()  # on GPUs, MPI would have to support CUDA
    if why and mpi_comm.rank == 0:
        print(why, flush=True)
    if runs == "naive":
        communicator = CpuCommunicator(mpi_comm, allreduce_grad_dtype)
    else:
        options = {"allreduce_grad_dtype": allreduce_grad_dtype} if allreduce_grad_dtype else {}
        communicator = communicators.create_communicator(runs, mpi_comm, **options)
        send_through_host(communicator)
    communicator.name = runs
    return _recorded(communicator)


def add_options(parser):
    """Add the options on how gradients are sent to a training script's parser."""
    add = parser.add_argument
    add(
        "--communicator",
        default="hierarchical",
        metavar="NAME",
        help="name of ChainerMN's communicator. Default: %(default)s",
    )
    add(
        "--allreduce-grad-dtype",
        choices=["float16", "float32"],
        help="data type of the gradients on the network. Default: the type of the parameters",
    )
    add("--double-buffering", action="store_true", help="send the gradients of the last step during the next step")


def _gpus(mpi_comm):
    """Return (whether each rank can have its own GPU, whether ranks would have to share GPUs)."""
    ranks = mpi_comm.allgather(
        (virtual_gpus.machine(), devices.count() if devices.has_gpus() and nccl._available else 0)
    )
    machines = [machine for machine, _ in ranks]
    if not all(gpus for _, gpus in ranks):
        return False, False
    shared = any(machines.count(machine) > gpus for machine, gpus in ranks)
    return not shared, shared


def choose(name, allreduce_grad_dtype=None, has_gpus=False, shared=False):
    """Return (the name of the communicator that can run here, a line that explains why it is not the given one, or
    None).

    has_gpus: whether each rank has a GPU; shared: whether there are GPUs, but fewer than ranks. Raises TrackError.
    """
    if name not in NAMES:
        raise TrackError(
            f"there is no communicator called {name!r}: choose one of {', '.join(NAMES)}", on_all_ranks=True
        )
    if allreduce_grad_dtype is not None and numpy.dtype(allreduce_grad_dtype).name not in ("float16", "float32"):
        raise TrackError(f"allreduce_grad_dtype must be float16 or float32, not {allreduce_grad_dtype!r}")
    if allreduce_grad_dtype is not None and name in ("flat", "non_cuda_aware"):
        raise TrackError(
            f"communicator {name} sends gradients in their own type: with --allreduce-grad-dtype, use pure_nccl",
            on_all_ranks=True,
        )
    half = allreduce_grad_dtype is not None and numpy.dtype(allreduce_grad_dtype) == numpy.float16
    missing = (
        "Chainer 7 does not have it"
        if name in GONE
        else "NCCL needs a GPU for each rank, and here ranks would share one"
        if shared
        else f"{'needs' if name == 'pure_nccl' else 'needs GPUs,'} CuPy and NCCL"
    )
    if name == "naive" and allreduce_grad_dtype:
        return (
            name,
            f"Communicator naive: gradients are sent as {numpy.dtype(allreduce_grad_dtype)}, all in one message.",
        )
    if name == "naive" or has_gpus and name not in GONE:
        return name, None
    if has_gpus:
        return "pure_nccl", f"Communicator {name}: {missing}; pure_nccl, its successor, is used instead."
    return "naive", (
        f"Communicator {name}: {missing}; used instead: naive, MPI on CPUs"
        f"{', with float16 on the wire' if half else ''}."
    )


def send_through_host(communicator):
    """Make a communicator of GPUs copy to the host's memory what MPI sends, because most MPI libraries would crash on
    pointers to a GPU's memory.

    Without NCCL, Chainer sends the statistics of AllreducePersistent, and with ``flat`` also parameters and gradients.
    """
    mean = communicator._multi_node_mean

    def mean_through_host(sent, received):
        host = chainer.backends.cuda.to_cpu(received if sent is None else sent).copy()
        mean(None, host)
        received[...] = chainer.backend.get_array_module(received).asarray(host)

    vars(communicator)["_multi_node_mean"] = mean_through_host
    if isinstance(communicator, FlatCommunicator):
        vars(communicator)["bcast_data"] = lambda model: NonCudaAwareCommunicator.bcast_data(communicator, model)


def _recorded(communicator):
    """Return the communicator, whose collectives are recorded if this process is."""
    if recording.recorder:
        from handson.profiling.recorders import chainer_hooks

        chainer_hooks.watch(communicator)
    return communicator


class CpuCommunicator(NaiveCommunicator):
    """Chainer's naive communicator, with an option for the data type in which gradients are sent. Parameters keep their
    own type."""

    def __init__(self, mpi_comm, allreduce_grad_dtype=None):
        super().__init__(mpi_comm)
        with self.config_scope():
            self.allreduce_grad_dtype = None if allreduce_grad_dtype is None else numpy.dtype(allreduce_grad_dtype)

    def split(self, color, key):
        return type(self)(self.mpi_comm.Split(color, key), self.allreduce_grad_dtype)

    def bcast_data(self, model):
        """Copy rank 0's parameters to all ranks. Raises TrackError on all ranks if their models differ."""
        self._check_same_model(model)
        super().bcast_data(model)

    def multi_node_mean_grad(self, model, zero_fill=False):
        """Replace every gradient with its mean over all ranks."""
        if self.allreduce_grad_dtype is None:
            super().multi_node_mean_grad(model, zero_fill)  # one all-reduce per parameter, in its own type
        else:
            MeanGradients(self.mpi_comm, model, zero_fill, self.allreduce_grad_dtype).all_reduce()

    def _check_same_model(self, model):
        mine = [
            (name, None if parameter.array is None else (parameter.shape, parameter.dtype.name))
            for name, parameter in sorted(model.namedparams())
        ]
        everybodys = self.mpi_comm.allgather(mine)
        for rank, theirs in enumerate(everybodys):
            if theirs != everybodys[0]:
                difference = _difference(everybodys[0], theirs, rank)
                sentence = f"the ranks have different models: {difference}; build the same model on every rank"
                raise TrackError(sentence, on_all_ranks=True)

    def _init_ranks(self):
        """Return the same as Chainer's method, but with the names of virtual nodes if the job has them."""
        nodes = self.mpi_comm.allgather(current_node())
        here = nodes[self.rank]
        self._intra_rank, self._intra_size = nodes[: self.rank].count(here), nodes.count(here)
        different = list(dict.fromkeys(nodes))
        self._inter_rank, self._inter_size = different.index(here), len(different)


def _difference(first, other, rank):
    """Return words for the first parameter that differs between two lists of (name, (shape, type))."""
    first, other = dict(first), dict(other)
    for name in sorted({*first, *other}):
        if first.get(name, "missing") != other.get(name, "missing"):
            return f"parameter {name} is {_words(first, name)} on rank 0 and {_words(other, name)} on rank {rank}"


def _words(model, name):
    if name not in model:
        return "missing"
    return "without a size" if model[name] is None else f"{model[name][0]} {model[name][1]}"
