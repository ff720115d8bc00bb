"""Every communicator name of the lecture works, says what runs instead of it, and averages gradients rightly."""

import handson.chainer  # noqa: F401
from handson.chainer.communicators import GONE, NAMES, choose

import numpy
import pytest
from mpi_runs import mpiexec, results

from handson.errors import TrackError

pytestmark = pytest.mark.thorough


def test_naive_is_what_runs_on_cpus_and_every_other_name_says_why():
    assert choose("naive") == ("naive", None)
    for name in set(NAMES) - {"naive"}:
        runs, why = choose(name)
        assert runs == "naive" and why.startswith(f"Communicator {name}: ") and "used instead: naive" in why
        assert "\n" not in why and ("Chainer 7" in why) == (name in GONE) and ("NCCL" in why) == (name not in GONE)


def test_on_gpus_chainers_own_are_passed_on():
    for name in NAMES:
        runs, why = choose(name, has_gpus=True)
        assert (runs, why is None) == (("pure_nccl", False) if name in GONE else (name, True))


def test_float16_is_mentioned_where_it_is_done_otherwise():
    assert "float16 on the wire" in choose("pure_nccl", "float16")[1]
    assert "float16" not in choose("pure_nccl", numpy.float32)[1]
    assert choose("naive", "float16") == (
        "naive",
        "Communicator naive: gradients are sent as float16, all in one message.",
    )


@pytest.mark.parametrize(
    "name, dtype, sentence",
    [
        ("fast", None, "no communicator called 'fast': choose one of hierarchical, flat"),
        ("naive", "int8", "must be float16 or float32, not 'int8'"),
    ],
)
def test_what_does_not_exist_is_named(name, dtype, sentence):
    with pytest.raises(TrackError, match=sentence):
        choose(name, dtype)


@pytest.mark.parametrize("has_gpus", [False, True])
@pytest.mark.parametrize("name", ["flat", "non_cuda_aware"])
def test_a_type_of_gradients_that_a_communicator_on_gpus_cannot_have_is_refused_everywhere(name, has_gpus):
    with pytest.raises(TrackError, match=f"communicator {name} sends gradients in their own type: .* use pure_nccl"):
        choose(name, "float16", has_gpus)


def test_rank_0_alone_explains_and_all_names_run():
    process = mpiexec(
        2,
        f"""
for name in {NAMES}:
    communicator = create_communicator(name)
    assert communicator.name == "naive" and communicator.size == 2
""",
    )
    assert process.returncode == 0, process.stderr
    assert [line.split(":")[0] for line in process.stdout.splitlines()] == [
        f"Communicator {name}" for name in NAMES[:-1]
    ]


def test_ranks_are_counted_by_virtual_node():
    assert results(
        4,
        """
os.environ["HANDSON_NODE"] = f"node{RANK // 2}"
communicator = create_communicator("naive")
result([communicator.intra_rank, communicator.intra_size, communicator.inter_rank, communicator.inter_size])
""",
    ) == [[0, 2, 0, 2], [1, 2, 0, 2], [0, 2, 1, 2], [1, 2, 1, 2]]


MEAN = """
class Model(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.a, self.b = chainer.Parameter(numpy.zeros((3, 5), "f")), chainer.Parameter(numpy.zeros(7, "f"))
            self.unused, self.lazy = chainer.Parameter(numpy.ones(2, "f")), chainer.Parameter()
class Recorder:
    '''An mpi4py communicator that notes the bytes of each all-reduce.'''
    def __init__(self, comm):
        self.comm, self.bytes = comm, []
    def __getattr__(self, name):
        return getattr(self.comm, name)
    def Allreduce(self, send, receive, op=MPI.SUM):
        self.bytes.append((receive[0] if isinstance(receive, list) else receive).nbytes)
        self.comm.Allreduce(send, receive, op)
mpi_adds_float16 = mean_gradients._mpi_adds_float16()
def mean(b, dtype, mpi_adds_float16):
    mean_gradients._mpi_adds_float16 = lambda: mpi_adds_float16
    communicator = create_communicator("naive", allreduce_grad_dtype=dtype)
    communicator.mpi_comm = recorder = Recorder(communicator.mpi_comm)
    model = Model()
    model.a.grad, model.b.grad = numpy.full((3, 5), 1 / 3, "f"), b.astype("f")
    communicator.multi_node_mean_grad(model, zero_fill=True)
    return {"a": model.a.grad.tolist(), "b": model.b.grad.tolist(), "unused": model.unused.grad.tolist(),
            "types": [p.grad.dtype.name for p in (model.a, model.b, model.unused)], "bytes": sum(recorder.bytes)}
ways = (None, False), ("float32", False), ("float16", mpi_adds_float16), ("float16", False)
result([[mean(b, *way) for way in ways] for b in (numpy.arange(7) + RANK, numpy.random.RandomState(RANK).randn(7))])
"""


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_gradients_become_their_mean_and_travel_in_the_type_asked_for(ranks):
    """A third has no exact float16: that it comes back rounded, and in half as many bytes, shows how it travelled."""
    ranks_results = results(ranks, MEAN)
    for exact, _ in ranks_results:
        for mean, byte_count, third in zip(
            exact, (96, 96, 48, 48), [numpy.float32(1 / 3)] * 2 + [numpy.float16(1 / 3)] * 2
        ):
            numpy.testing.assert_allclose(
                mean["a"], numpy.full((3, 5), float(third)), rtol=1e-7 if ranks != 3 else 1e-3
            )
            numpy.testing.assert_allclose(mean["b"], [i + (ranks - 1) / 2 for i in range(7)], rtol=1e-6)
            assert mean["types"] == ["float32"] * 3 and mean["bytes"] == byte_count and mean["unused"] == [0, 0]
    # Rounded after each addition, a sum depends on its order: ranks that disagreed would drift apart.
    rounded = [rounded for _, rounded in ranks_results]
    assert all(other == rounded[0] for other in rounded)
    expected = numpy.mean([numpy.random.RandomState(rank).randn(7) for rank in range(ranks)], axis=0)
    for mean, tolerance in zip(rounded[0], (1e-6, 1e-6, 2e-3, 2e-3)):
        numpy.testing.assert_allclose(mean["b"], expected, atol=tolerance)


TRAINING = """
from small_training import *
ranks = MPI.COMM_WORLD.size
random = numpy.random.RandomState(1)
images, labels = random.rand(16, 9).astype("f"), random.randint(3, size=16).astype("i")
def train(name, dtype):
    model = make_model(seed=RANK)  # another start on each rank: rank 0's must count
    optimizer = chainer.optimizers.MomentumSGD(0.1)
    optimizer = create_multi_node_optimizer(optimizer, create_communicator(name, None, dtype)).setup(model)
    for step in range(6):
        mine = numpy.arange(16).reshape(2, ranks, -1)[step % 2, RANK]
        optimizer.update(model, images[mine], labels[mine])
    return values(model)
result([train("hierarchical", None), train("pure_nccl", "float16")])
"""


def test_ranks_together_equal_one_process_with_their_batches():
    ((alone, _),) = results(1, TRAINING)
    for ranks in (2, 4):
        first, *others = results(ranks, TRAINING)
        assert all(other == first for other in others)
        for trained, tolerance in zip(first, (2e-6, 1e-3)):
            for mine, its in zip(trained, alone):
                numpy.testing.assert_allclose(mine, its, atol=tolerance)


def test_models_that_differ_end_all_ranks_with_the_parameter():
    process = mpiexec(
        3,
        """
communicator = create_communicator("naive")
optimizer = create_multi_node_optimizer(chainer.optimizers.SGD(), communicator).setup(L.Linear(10, 8 + 4 * (RANK == 2)))
optimizer.target(numpy.ones((1, 10), "f"))
optimizer.update(lambda: F.sum(optimizer.target(numpy.ones((1, 10), "f"))))
""",
    )
    sentence = (
        "the ranks have different models: parameter /W is (8, 10) float32 on rank 0 and (12, 10) float32 on rank 2; "
        "build the same model on every rank"
    )
    assert process.returncode == 2
    assert process.stderr.count("the ranks have different models") == 1 and sentence in process.stderr
    assert "Traceback" not in process.stderr
