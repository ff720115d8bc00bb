"""Distributed learners: each wraps a local learner, and determines which data the workers send, and when."""

import math

import numpy
import torch

from handson.cntk import workers
from handson.cntk.learners import Learner
from handson.errors import TrackError


class Communicator:
    """CNTK's Communicator: the number and the ranks of the workers."""

    @staticmethod
    def num_workers():
        """Return the number of workers."""
        return workers.world().size

    @staticmethod
    def rank():
        """Return the rank of this worker."""
        return workers.world().rank

    @staticmethod
    def is_main():
        """Return whether this is worker 0, which prints and writes files."""
        return workers.world().rank == 0

    @staticmethod
    def barrier():
        """Wait until all workers have called this function."""
        workers.world().barrier()

    @staticmethod
    def finalize():
        """End all communication: wait for the other workers, then finalize MPI."""
        workers.finalize()


class DistributedLearner(Learner):
    """A learner that wraps a local learner. For the first `distributed_after` samples, every worker trains on whole
    minibatches and sends nothing."""

    def __init__(self, learner, distributed_after):
        if isinstance(learner, DistributedLearner):
            raise TrackError(
                "a distributed learner wraps a local one, such as momentum_sgd(...), not another distributed learner"
            )
        if distributed_after < 0:
            raise TrackError(f"distributed_after must be a number of samples, 0 or more, not {distributed_after}")
        self.learner, self.parameters, self.optimizer = learner, learner.parameters, learner.optimizer
        self.distributed_after, self.equal = distributed_after, False

    def partitions(self, samples_seen):
        comm = workers.world()
        return (comm.size, comm.rank) if samples_seen >= self.distributed_after else (1, 0)

    def update(self, sums, samples_seen):
        """Like Learner.update. Raises TrackError if a gradient of this worker is infinite or NaN, because it would
        spread to all workers and to the next checkpoint."""
        if not all(parameter.grad is None or parameter.grad.sum().isfinite() for parameter in self.parameters):
            worker = f"worker {workers.world().rank}: a gradient is infinite or NaN after {samples_seen:,} samples"
            raise TrackError(f"{worker}, so the run ends: try a lower learning rate (--lr)")
        if samples_seen < self.distributed_after:
            return self.learner.update(sums, samples_seen)
        if not self.equal:
            self._compare()
        return self.update_together(sums)

    def _compare(self):
        """Check before the first communication that the parameters are equal on all workers. Raises TrackError."""
        flat = _flat(parameter.data for parameter in self.parameters)
        checksums = workers.world().allgather([float(flat.sum()), float(numpy.abs(flat).sum())])
        if others := [rank for rank, one in enumerate(checksums) if one != checksums[0]]:
            cause = (
                "until then, each worker must train on whole minibatches (num_data_partitions=1)"
                if self.distributed_after
                else "build the network from the same seed on all workers"
            )
            raise TrackError(
                f"the parameters of worker {others[0]} differ from those of worker 0 when the workers start to"
                f" communicate: {cause}",
                on_all_ranks=True,
            )
        self.equal = True

    def state(self):
        shared, own = self.learner.state()
        return shared | {"equal": self.equal}, own

    def restore(self, shared, own):
        if "optimizer" not in shared:
            raise TrackError(
                "the checkpoint was written by a run with block momentum: delete it, or start without restoring it"
            )
        self.learner.restore(shared, own)
        self.equal = shared["equal"]


class DataParallel(DistributedLearner):
    """A learner whose steps use the gradients of all workers. bits: 32, or 1 with error feedback (Seide et al.,
    Interspeech 2014)."""

    def __init__(self, learner, distributed_after, bits):
        super().__init__(learner, distributed_after)
        self.bits = bits
        self.residual = (
            numpy.zeros(sum(parameter.numel() for parameter in self.parameters), _type_of(self.parameters))
            if bits == 1
            else None
        )

    def update_together(self, sums):
        gradients = _flat(_gradient(parameter) for parameter in self.parameters)
        if self.bits == 1:
            gradients, sums = self._one_bit(gradients), _sum(numpy.array(sums, dtype="float64"))
        else:
            total = _sum(numpy.concatenate([gradients, numpy.asarray(sums, gradients.dtype)]))
            gradients, sums = total[:-3], total[-3:]
        sums = [int(sums[0]), float(sums[1]), float(sums[2])]
        if sums[0]:
            _fill((parameter.grad for parameter in self.parameters), gradients)
            self.learner.step(sums[0])
        return sums

    def _one_bit(self, gradients):
        """Return the sum of all workers' messages. A message has one bit per gradient, and for each parameter the mean
        of the gradients above 0 and the mean of those below 0."""
        owed = gradients + self.residual
        above = owed >= 0
        values = [_two_values(numbers, signs) for numbers, signs in zip(self._parts(owed), self._parts(above))]
        self.residual = owed - self._restored(above, values)
        messages = workers.world().allgather((values, numpy.packbits(above)))
        return sum(
            self._restored(numpy.unpackbits(bits, count=len(owed)).astype(bool), values) for values, bits in messages
        )

    def _restored(self, above, values):
        parts = [numpy.where(signs, high, low) for signs, (high, low) in zip(self._parts(above), values)]
        return numpy.concatenate(parts).astype(self.residual.dtype)

    def _parts(self, flat):
        return numpy.split(flat, numpy.cumsum([parameter.numel() for parameter in self.parameters])[:-1])

    def state(self):
        shared, own = super().state()
        return shared, own if self.residual is None else own | {"residual": torch.from_numpy(self.residual.copy())}

    def restore(self, shared, own):
        super().restore(shared, own)
        if self.residual is None:
            return
        found = own.get("residual")
        if found is None or len(found) != len(self.residual):
            has = "no residual" if found is None else f"a residual of {len(found):,} numbers"
            raise TrackError(
                f"worker {workers.world().rank}: the checkpoint has {has}, but the network has {len(self.residual):,}"
                " parameters: it was written with another network or with another num_quantization_bits"
            )
        self.residual = found.numpy()


class BlockMomentum(DistributedLearner):
    """A learner whose workers train by themselves for a block, then filter the change of their mean model: K. Chen and
    Q. Huo, "Scalable training of deep learning machines by incremental block training with intra-block parallel
    optimization and blockwise model-update filtering", ICASSP 2016.

        change = block_momentum * change + block_learning_rate * (mean of the workers' models - model at the start)
        model += change; the next block starts at `model`, with Nesterov's momentum at model + block_momentum * change.
    """

    def __init__(self, learner, block_size, momentum, rate, nesterov, reset, distributed_after):
        super().__init__(learner, distributed_after)
        self.block_size, self.momentum, self.rate, self.nesterov, self.reset_momentum = (
            block_size,
            momentum,
            rate,
            nesterov,
            reset,
        )
        self.model = self.begin = self.change = None
        self.in_block = 0  # samples that all workers have used since the last block

    def update_together(self, sums):
        if self.model is None:
            self.model = self.begin = _flat(parameter.data for parameter in self.parameters)
            self.change = numpy.zeros_like(self.model)
        self.learner.update(sums, 0)
        sums = [float(one) for one in _sum(numpy.array(sums, dtype="float64"))]
        self.in_block += int(sums[0])
        if self.in_block >= self.block_size:
            self._end_block(self.nesterov)
        return [int(sums[0]), *sums[1:]]

    def finish(self):
        """End the last block, which may be shorter. All workers then have the same model, without Nesterov's
        look-ahead."""
        if self.model is not None:
            if self.in_block:
                self._end_block(nesterov=False)
            _fill((parameter.data for parameter in self.parameters), self.model)

    def _end_block(self, nesterov):
        mean = _sum(_flat(parameter.data for parameter in self.parameters)) / workers.world().size
        self.change = self.momentum * self.change + self.rate * (mean - self.begin)
        self.model = self.model + self.change
        self.begin = self.model + self.momentum * self.change if nesterov else self.model
        _fill((parameter.data for parameter in self.parameters), self.begin)
        self.in_block = 0
        if self.reset_momentum:
            self.learner.reset()

    def state(self):
        """Return the state. Within a block, each worker has its own model and its own momentum."""
        shared, own = super().state()
        block = {
            name: None if getattr(self, name) is None else torch.from_numpy(getattr(self, name).copy())
            for name in ("model", "begin", "change")
        }
        own |= {
            "optimizer": shared.pop("optimizer"),
            "parameters": [parameter.data.clone() for parameter in self.parameters],
        }
        return shared | {"block": block, "in_block": self.in_block}, own

    def restore(self, shared, own):
        if "block" not in shared:
            raise TrackError(
                "the checkpoint was written by a run without block momentum: delete it, or start without restoring it"
            )
        super().restore(shared | {"optimizer": own["optimizer"]}, own)
        for name, value in shared["block"].items():
            setattr(self, name, None if value is None else value.numpy())
        for parameter, value in zip(self.parameters, own["parameters"], strict=True):
            parameter.data.copy_(value)
        self.in_block = shared["in_block"]


def data_parallel_distributed_learner(
    learner, distributed_after=0, num_quantization_bits=32, use_async_buffered_parameter_update=False
):
    """Return a distributed learner whose workers exchange gradients in every minibatch.

    distributed_after: number of samples before the first exchange (a warm start); num_quantization_bits: 32, or 1 for
    the sign of each gradient, with error feedback. Raises TrackError.
    """
    if use_async_buffered_parameter_update:
        raise TrackError("handson.cntk has no use_async_buffered_parameter_update; hooks.py has double buffering")
    if num_quantization_bits not in (1, 32):
        raise TrackError(
            f"num_quantization_bits must be 1 or 32 here, not {num_quantization_bits}; only CNTK itself supported the"
            " numbers in between"
        )
    return DataParallel(learner, distributed_after, num_quantization_bits)


def block_momentum_distributed_learner(
    learner,
    block_size,
    block_momentum_as_time_constant=None,
    use_nestrov_momentum=True,
    reset_sgd_momentum_after_aggregation=True,
    block_learning_rate=1.0,
    distributed_after=0,
):
    """Return a distributed learner whose workers average models, once every `block_size` samples of all workers
    together.

    block_momentum_as_time_constant: T in samples, which gives the block momentum exp(-block_size / T). With None, the
    block momentum is 1 - 1 / number of workers. (The spelling of the Nesterov option is CNTK's.) Raises TrackError.
    """
    if block_size < 1:
        raise TrackError(f"block_size must be a number of samples above 0, not {block_size}")
    time_constant = block_momentum_as_time_constant
    momentum = (
        1 - 1 / workers.world().size
        if time_constant is None
        else math.exp(-block_size / time_constant)
        if time_constant > 0
        else 0.0
    )
    return BlockMomentum(
        learner,
        block_size,
        momentum,
        block_learning_rate,
        use_nestrov_momentum,
        reset_sgd_momentum_after_aggregation,
        distributed_after,
    )


def _two_values(numbers, above):
    """Return the mean of the numbers above 0 and the mean of the others; an empty mean is 0."""
    return [float(some.mean()) if len(some) else 0.0 for some in (numbers[above], numbers[~above])]


def _gradient(parameter):
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _type_of(parameters):
    return str(parameters[0].dtype).removeprefix("torch.")


def _flat(tensors):
    """Return a copy of the numbers of some tensors, as one NumPy array."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).cpu().numpy()


def _fill(tensors, flat):
    """Copy an array like that of `_flat` into tensors."""
    begin = 0
    for tensor in tensors:
        tensor.copy_(torch.from_numpy(flat[begin : begin + tensor.numel()]).view_as(tensor))
        begin += tensor.numel()


def _sum(array):
    """Return the sum of the workers' arrays, on every worker."""
    total = numpy.empty_like(array)
    workers.world().Allreduce(array, total)
    return total
