"""Double buffering on CPUs does what ChainerMN's does on GPUs, and gradients do travel while a rank computes."""

import handson.chainer  # noqa: F401

import chainer
import numpy
import pytest
from mpi_runs import results
from small_training import gradients, make_model, parameters, values

STEPS = 7

TRAIN = f"""
from small_training import *
def train(dtype):
    model = make_model(seed=RANK)  # another start on each rank: rank 0's must count
    optimizer = chainer.optimizers.MomentumSGD(0.1)
    communicator = create_communicator("naive", allreduce_grad_dtype=dtype)
    optimizer = create_multi_node_optimizer(optimizer, communicator, double_buffering=True).setup(model)
    for step in range({STEPS}):
        optimizer.update(model, *batch(RANK, step))
        yield values(model)
result([list(train(dtype)) for dtype in (None, "float32", "float16")])
"""
pytestmark = pytest.mark.thorough


def simulate(ranks, travels):
    """The same on one rank after the other. Every update applies the mean gradients of the step before.

    As in ChainerMN, the first update only hands out rank 0's parameters, and its gradients are lost; the second has
    none from before. ``travels``: what happens to a list of the ranks' gradients that are summed.
    """
    model = make_model(seed=0)
    optimizer = chainer.optimizers.MomentumSGD(0.1).setup(model)
    before, history = None, []
    for step in range(STEPS):
        now = [
            travels(those_of_ranks) / ranks
            for those_of_ranks in zip(*(gradients(model, rank, step) for rank in range(ranks)))
        ]
        if step == 0:
            now = None
        elif before is not None:
            for parameter, gradient in zip(parameters(model), before):
                parameter.grad = gradient
            optimizer.update()
        before = now
        history.append(values(model))
    return history


def as_float16(those_of_ranks):
    return sum(gradient.astype(numpy.float16) for gradient in those_of_ranks).astype(numpy.float32)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_it_equals_a_simulation_in_one_process(ranks):
    histories = results(ranks, TRAIN)
    assert all(history == histories[0] for history in histories), "ranks differ"
    # float16: one addition has one rounding, but with more the order counts, and that is MPI's choice.
    for real, travels, tolerance in zip(
        histories[0], (sum, sum, as_float16), (1e-6, 1e-6, 1e-6 if ranks < 4 else 1e-3)
    ):
        expected = simulate(ranks, travels)
        assert expected[0] == expected[1] != expected[2]
        for step in range(STEPS):
            for mine, its in zip(real[step], expected[step]):
                numpy.testing.assert_allclose(mine, its, rtol=tolerance, atol=tolerance, err_msg=f"step {step}")


def test_an_update_returns_while_its_gradients_still_travel():
    """Rank 1 joins the all-reduce only when rank 0 is past it; a blocking all-reduce would wait forever."""
    assert results(
        2,
        """
from small_training import *
model = make_model(seed=0)
optimizer = create_multi_node_optimizer(chainer.optimizers.SGD(0.1), create_communicator("naive"), double_buffering=True)
optimizer.setup(model).update(model, *batch(RANK, 0))
if RANK == 1:
    while not (FOLDER / "rank 0 is past it").exists():
        time.sleep(0.005)
optimizer.update(model, *batch(RANK, 1))
(FOLDER / f"rank {RANK} is past it").touch()
result("done")
""",
    ) == ["done", "done"]


def test_evaluation_may_use_mpi_while_gradients_travel():
    assert (
        results(
            2,
            """
from small_training import *
communicator = create_communicator("naive")
model = make_model(seed=0)
optimizer = create_multi_node_optimizer(chainer.optimizers.SGD(0.1), communicator, double_buffering=True).setup(model)
totals = []
for step in range(5):
    optimizer.update(model, *batch(RANK, step))
    totals.append(communicator.allreduce_obj(RANK + step))
result(totals)
""",
        )
        == [[1, 3, 5, 7, 9]] * 2
    )
