"""All-reduces from scratch and communication hooks: right for every number of ranks and every length, and trained
with."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from environments import QUICK_START
from loading import load
from ranks import on_ranks

from handson.notebook import runs
from handson.pytorch import all_reduces, messages, pytorch_method_runs

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "solutions/05_communication/pytorch"
LENGTHS = (1, 2, 3, 5, 6, 7, 64, 1001)
LIMIT = 120  # seconds


def solution(script):
    return load(SCRIPTS / f"{script}.py")


def numbers(rank, length):
    """Whole numbers, whose sums are exact in any order."""
    return torch.randint(-999, 1000, (length,), generator=torch.Generator().manual_seed(100 * length + rank)).float()


def all_lengths(comm, algorithm):
    """The lengths for which the all-reduce does not give the sum."""
    all_reduce, wrong = getattr(solution("all_reduce"), algorithm), []
    for length in LENGTHS:
        tensor = numbers(comm.rank, length)
        all_reduce(tensor)
        if not torch.equal(tensor, sum(numbers(rank, length) for rank in range(comm.size))):
            wrong.append(length)
    return wrong


@pytest.mark.parametrize("size", [1, 2, 3, 4, *(pytest.param(size, marks=pytest.mark.thorough) for size in (5, 6))])
@pytest.mark.parametrize("algorithm", ["naive", "ring", "doubling"])
def test_every_rank_has_the_sum_whatever_the_length(algorithm, size):
    assert on_ranks(all_lengths, size, algorithm) == [[]] * size


def counted(comm, algorithm):
    messages.sent.clear()
    getattr(solution("all_reduce"), algorithm)(torch.ones(120))
    return messages.sent["messages"], messages.sent["bytes"]


@pytest.mark.parametrize(
    ("algorithm", "busiest"), [("naive", (3, 3 * 480)), ("ring", (6, 6 * 120)), ("doubling", (2, 2 * 480))]
)
def test_four_ranks_send_what_the_formula_says(algorithm, busiest):
    assert max(on_ranks(counted, 4, algorithm)) == busiest


def packed(comm):
    flags = torch.rand(13, generator=torch.Generator().manual_seed(comm.rank)) < 0.5
    gathered = messages.gather([torch.tensor(1.5 + comm.rank), messages.pack(flags)])
    return [(float(scale), messages.unpack(bits, 13).tolist(), len(bits)) for scale, bits in gathered], flags.tolist()


def test_bits_are_packed_and_come_back_on_every_rank():
    values = on_ranks(packed, 3)
    flags = [of_rank for _, of_rank in values]
    for gathered, _ in values:
        assert gathered == [(1.5 + rank, flags[rank], 2) for rank in range(3)]


def test_bits_are_packed_on_the_device_where_they_are():
    """No number of a tensor on the device `meta` can be read on the host."""
    flags = torch.empty(13, device="meta") >= 0
    assert (messages.pack(flags).shape, messages.pack(flags).device.type) == ((2,), "meta")
    assert messages.unpack(messages.pack(flags), 13).device.type == "meta"


@pytest.mark.parametrize("hook", ["one_bit", "top_k"])
def test_a_hook_sends_what_its_device_has(hook, monkeypatch):
    """Nothing that a hook computes leaves the device, as a number or a tensor."""
    bucket, hooks, sent = SimpleNamespace(buffer=lambda: torch.ones(13, device="meta"), index=lambda: 0), [], []
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "all_gather", lambda everybodys, mine: sent.extend([mine, *everybodys]))
    hooks, residuals = solution("hooks"), {}
    assert getattr(hooks, hook)(residuals, bucket).value().device.type == "meta"
    assert {one.device.type for one in [*sent, *residuals.values()]} == {"meta"}


def wrong_sum(comm):
    try:
        all_reduces.timed("half", lambda tensor: dist.all_reduce(tensor[: len(tensor) // 2]), 16, comm)
    except all_reduces.WrongSum as problem:
        return str(problem)


def test_an_all_reduce_that_gives_no_sum_is_not_measured():
    for sentence in on_ranks(wrong_sum, 2):
        assert sentence.startswith("half: the result for 16 numbers on 2 ranks is not the sum")


def of_unequal_lengths(comm):
    """What this rank says where rank 1 sends and expects a number more than rank 0 does: gloo itself would abort rank
    0."""

    def all_reduce(tensor):
        mine = tensor[: 15 + comm.rank]
        sending = messages.send(mine, 1 - comm.rank)
        try:
            messages.receive(mine, 1 - comm.rank)
        finally:  # a rank that has found it first must not end before its own message is there
            sending.wait()

    try:
        all_reduces.timed("uneven", all_reduce, 16, comm)
    except messages.WrongLength as problem:
        return str(problem)


def test_a_message_of_another_length_than_expected_is_a_sentence():
    first, second = on_ranks(of_unequal_lengths, 2)
    assert first.startswith("expects 15 numbers from rank 1, which sends 16: all ranks need the same length")
    assert second.startswith("expects 16 numbers from rank 0, which sends 15: ")


def with_nobody(comm):
    """What two ranks say of messages to and from themselves, and ranks that do not exist."""
    tensor, said = torch.ones(2), []
    for begin, other in ((messages.send, comm.rank), (messages.receive, comm.rank), (messages.send, 2)):
        try:
            begin(tensor, other)
        except messages.NoPartner as problem:
            said.append(str(problem))
    return said


def test_a_message_without_another_rank_is_a_sentence():
    for rank, said in enumerate(on_ranks(with_nobody, 2)):
        to, source, missing = said
        assert to.startswith(f"rank {rank} sends to itself: ")
        assert source.startswith(f"rank {rank} receives from itself: ")
        assert "rank 2, which does not exist" in missing


def sends_before_it_waits(tensor):
    """Recursive doubling on two ranks: right on plain gloo, since both have begun to receive before either sends."""
    partner = 1 - dist.get_rank()
    arriving = messages.expect(tensor, partner)
    messages.send(tensor, partner).wait()
    tensor += arriving.wait()


def receives_from_plain_gloo(tensor):
    """One message of torch's own to `expect`, and one of `send` to torch's own."""
    arriving, partner = torch.empty_like(tensor), 1 - dist.get_rank()
    if partner:
        dist.send(tensor, partner)
        dist.recv(arriving, partner)
    else:
        arriving = messages.receive(tensor, partner)
        messages.send(tensor, partner).wait()
    tensor += arriving


def timed(comm, all_reduce):
    return all_reduces.timed(all_reduce.__name__, all_reduce, 4096, comm)["messages"]


@pytest.mark.parametrize(("all_reduce", "count"), [(sends_before_it_waits, [1, 1]), (receives_from_plain_gloo, [0, 1])])
def test_what_is_right_on_plain_gloo_is_measured(all_reduce, count):
    assert on_ranks(timed, 2, all_reduce) == [count] * 2


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(output, folder of results) of an epoch with every method."""
    out = tmp_path_factory.mktemp("hooks")
    options = ["--method", "all", "-e", "1", "--size", "16", "--warm-up", "2", "-b", "300", "-o", str(out)]
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    run = subprocess.run(
        [mpiexec, "-n", "2", sys.executable, SCRIPTS / "train_hooks.py", *options],
        env=os.environ | QUICK_START,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout, out


@pytest.mark.thorough
def test_every_method_trains_and_writes_its_own_result(trained):
    output, out = trained
    methods = list(solution_methods())
    assert output.count("Throughput: ") == len(methods)
    for method in methods:
        result = json.loads((out / f"{method}_0" / "result.json").read_text())
        assert result["script"] == "train_hooks"
        assert result["log"][-1]["validation/main/accuracy"] > 0.05


def solution_methods():
    sys.path.insert(0, str(SCRIPTS))
    try:
        return solution("train_hooks").METHODS
    finally:
        sys.path.remove(str(SCRIPTS))


def test_an_all_reduce_in_flight_is_waited_for_before_the_evaluation():
    waited = []
    work = SimpleNamespace(wait=lambda: waited.append("waited"))
    pytorch_method_runs.wait({0: (torch.zeros(1), work), 1: (torch.zeros(1), work)})
    assert waited == ["waited", "waited"]
    for state in (None, torch.float16, {0: torch.zeros(3)}):  # of hooks that have nothing in flight
        pytorch_method_runs.wait(state)


@pytest.mark.parametrize("state", [{}, pytorch_method_runs.Forgetful()], ids=["with memory", "without"])
def test_a_hook_without_memory_finds_nothing_however_it_keeps_it(state):
    found = []

    def hook(residuals, bucket):
        found.append(residuals.setdefault(bucket.index(), 0))  # fails where a key that was set is not there
        residuals.update({bucket.index(): residuals[bucket.index()] + 1})

    warm = pytorch_method_runs.after_warm_up(hook, 1, lambda state, bucket: None)
    for _ in range(4):
        warm(state, SimpleNamespace(index=lambda: 0))
    assert found == ([0, 0, 0] if isinstance(state, pytorch_method_runs.Forgetful) else [0, 1, 2])


def test_the_warm_start_is_not_part_of_a_rate():
    log = [{"epoch": epoch, "elapsed_time": seconds} for epoch, seconds in ((1, 10.0), (2, 12.0), (3, 14.0))]
    run = SimpleNamespace(log=log, images=300, epochs=3, throughput=300 / 14)
    assert runs.rate(run) == 50
    assert runs.rate(SimpleNamespace(log=log[:1], images=100, epochs=1, throughput=10)) == 10
