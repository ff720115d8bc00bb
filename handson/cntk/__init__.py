"""CNTK's interface for distributed training, implemented with PyTorch and MPI; it contains no code of CNTK.

CNTK has no package for today's Python. This package has the names of its documentation, with the same meaning; the
network is a PyTorch module. As in CNTK, minibatch sizes, frequencies and `distributed_after` count the samples of all
workers together.
"""

from handson.cntk.distributed import Communicator, block_momentum_distributed_learner, data_parallel_distributed_learner
from handson.cntk.io import INFINITELY_REPEAT, ImageDeserializer, MinibatchSource, StreamDef, StreamDefs
from handson.cntk.learners import classification_error, cross_entropy_with_softmax, momentum_sgd, sgd
from handson.cntk.train import CheckpointConfig, ProgressPrinter, TestConfig, Trainer, training_session
from handson.errors import OneSentence
from handson.training import mpi, rank_watcher
from handson.training.launch import under_mpiexec

__all__ = [
    "INFINITELY_REPEAT",
    "CheckpointConfig",
    "Communicator",
    "ImageDeserializer",
    "MinibatchSource",
    "ProgressPrinter",
    "StreamDef",
    "StreamDefs",
    "TestConfig",
    "Trainer",
    "block_momentum_distributed_learner",
    "classification_error",
    "cross_entropy_with_softmax",
    "data_parallel_distributed_learner",
    "momentum_sgd",
    "sgd",
    "training_session",
]

if under_mpiexec():
    rank_watcher.watch()
    mpi.start()


class Missing(OneSentence, AttributeError):
    """A name of CNTK that this package does not have."""


def __getattr__(name):
    if name.startswith("__"):  # Python itself looks up such names
        raise AttributeError(name)
    raise Missing(
        f"handson.cntk has no {name!r}: it has only the names in CNTK's documents on distributed training"
        f" ({', '.join(__all__)}); use PyTorch for everything else"
    )
