"""What all ranks must agree on: a problem that one of them has, and the options of the run."""

import argparse

import pytest
from ranks import on_ranks

from handson.errors import TrackError
from handson.pytorch.communicator import communicator, stop_together


def refusal(function, *arguments):
    """What a TrackError of the function says, and whether it tells that all ranks raise it; None where there is none."""
    try:
        function(*arguments)
    except TrackError as error:
        return str(error), error.on_all_ranks
    return None


def stopped(comm, problems):
    return refusal(stop_together, problems[comm.rank])


@pytest.mark.parametrize("problems", [[None], [None, None], ["a"], [None, "a", None], ["a", "b"]])
def test_a_problem_of_one_rank_ends_all_with_the_first_sentence(problems):
    expected = ("a", True) if "a" in problems else None
    assert on_ranks(stopped, len(problems), problems) == [expected] * len(problems)


def test_a_process_without_a_group_stops_by_itself():
    assert refusal(stop_together, None) is None
    assert refusal(stop_together, "a") == ("a", True)


def formed(comm, epochs, gpus):
    """Rank r has its own number of epochs, folder and GPUs: what refuses the run, or its size and nodes."""
    args = argparse.Namespace(epoch=epochs[comm.rank], out=f"folder {comm.rank}", gpu=gpus)
    if sentence := refusal(communicator, args):
        return sentence
    found = communicator(args)
    return found.size, found.inter_size, found.intra_rank, found.name


def test_ranks_need_the_same_options_but_not_the_same_folder():
    assert on_ranks(formed, 2, [1, 1], [0, 0]) == [(2, 1, 0, "gloo"), (2, 1, 1, "gloo")]
    sentence = "rank 0 has epoch 1, but rank 1 has 2: give all ranks the same options"
    assert on_ranks(formed, 2, [1, 2], [0, 0]) == [(sentence, True)] * 2


def test_a_gpu_that_is_not_there_is_named_on_all_ranks():
    [(sentence, on_all_ranks)] = set(on_ranks(formed, 2, [1, 1], [0, 999]))
    assert "there is no virtual GPU 999" in sentence and on_all_ranks
