"""An Evaluator whose result is the mean over samples, for one process or, through create_multi_node_evaluator, for any
number.

Chainer's own returns the mean of the batches' means, in which each sample of a small last batch weighs more than
others. ChainerMN then takes the mean of the ranks' means. Both depend on the batch size and the number of ranks.
"""

import collections
import copy
import math

import chainer
from chainer.dataset import convert
from chainer.training import extensions

from handson.profiling import recording
from handson.profiling.timeline import EVALUATION
from handson.training import progress


class Evaluator(extensions.Evaluator):
    """Chainer's Evaluator, made exact: all samples have the same weight, for any batch size and number of ranks.

    The model must report means over its batch, as Classifier does. Ranks may have different numbers of samples, even
    none: distribute the test set with ``scatter_dataset(test, comm, force_equal_length=False)``, which duplicates no
    sample.
    """

    def evaluate(self):
        """Return name -> mean over all samples. Raises the errors of Chainer's method."""
        with recording.span("user_annotation", EVALUATION):
            totals = self._local_totals()
        communicator = getattr(self, "_mn_communicator", None)  # create_multi_node_evaluator sets it
        if communicator is not None:
            totals = _sum(communicator.mpi_comm.allgather(totals))
        return {name: math.fsum(sums) / samples for name, (sums, samples) in sorted(totals.items())}

    def _local_totals(self):
        """Return name -> [a list of the batches' sums, number of samples]."""
        if self.eval_hook:
            self.eval_hook(self)
        iterator = self._iterators["main"]
        if hasattr(iterator, "reset"):
            iterator.reset()
        else:
            iterator = copy.copy(iterator)
        evaluate = self.eval_func or self._targets["main"]
        totals = collections.defaultdict(lambda: [[], 0])
        for batch in iterator if len(getattr(iterator, "dataset", [0])) else []:  # SerialIterator fails without samples
            observation = {}
            with chainer.report_scope(observation), chainer.no_backprop_mode():
                arrays = convert._call_converter(self.converter, batch, self.device)
                if isinstance(arrays, tuple):
                    evaluate(*arrays)
                elif isinstance(arrays, dict):
                    evaluate(**arrays)
                else:
                    evaluate(arrays)
            for name, value in observation.items():
                value = value.array if isinstance(value, chainer.Variable) else value
                totals[name][0].append(float(value) * len(batch))
                totals[name][1] += len(batch)
            progress.progress()
        return dict(totals)


def _sum(totals_of_ranks):
    """Merge several dicts into one dict of name -> (sums, samples)."""
    names = {name for totals in totals_of_ranks for name in totals}
    parts = {name: [totals[name] for totals in totals_of_ranks if name in totals] for name in names}
    return {
        name: ([value for sums, _ in some for value in sums], sum(samples for _, samples in some))
        for name, some in parts.items()
    }
