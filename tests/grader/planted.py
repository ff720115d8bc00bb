"""Answers to gaps, as functions could hide them: test_no_answers.py puts this module among those of a bundle, and must
find them all."""

from functools import partial


def multiplied(one, other):
    return one * other


def _divided(single, several):
    return several / single


def _judge(right):
    def judge(seen):
        return right(seen)

    return judge


def by_name_alone(*, per_node, rank):
    return rank % per_node


class Table:
    @property
    def accuracy(correct, images):  # noqa: N805
        return sum(correct) / sum(images)

    @staticmethod
    def limit(seconds, part):
        return sum(seconds.values()) / (sum(seconds.values()) - seconds[part])


TABLE = {"waiting": [lambda arrivals: (arrivals.max(axis=1, keepdims=True) - arrivals).mean(axis=0)]}
JUDGE = _judge(lambda batchsize, step_seconds: batchsize * len(step_seconds) / sum(step_seconds))
EFFICIENCY = partial(lambda power, single, several, workers: several / single / workers**power, 1)
