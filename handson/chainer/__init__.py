"""The Chainer track: the changes that Chainer 7 needs to run today, and features that it lacks on a machine without
GPUs.

A script, an MPI rank, a notebook or an engine only needs ``import handson.chainer`` above ``import chainer``.
``updaters`` has MultiprocessParallelUpdater for CPUs; ``communicators`` and ``optimizers`` have features that ChainerMN
lacks on CPUs; ``evaluators`` has an Evaluator that counts every sample once. Inside this package, ``chainer`` is always
the real Chainer.
"""

from handson.chainer import compat

from handson.profiling import recorders
from handson.training import mpi, rank_watcher
from handson.training.launch import under_mpiexec

if under_mpiexec():
    rank_watcher.watch()
    mpi.start()  # ChainerMN would wait for the other ranks without a time limit
compat.import_chainer()
recorders.begin("chainer")
