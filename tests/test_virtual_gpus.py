"""What a virtual GPU is to the process that uses it: one core, and memory that it keeps."""

import os
import sys

import pytest
from waiting import run_to_end

from handson.training import virtual_gpus

STEPS = """
import resource
from handson.training import virtual_gpus
{before}
for step in range(20):
    if step == 5:
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [bytearray(b"x") * (8 << 20) for _ in range(3)]
    del arrays
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults)
"""


def page_faults(before):
    done = run_to_end([sys.executable, "-c", STEPS.format(before=before)], check=True)
    return int(done.stdout)


@pytest.mark.skipif(os.confstr("CS_GNU_LIBC_VERSION") is None, reason="only glibc's malloc can be told to keep memory")
def test_a_pinned_process_does_not_fetch_the_same_memory_from_the_kernel_in_every_step():
    assert page_faults("virtual_gpus.pin(0)") < page_faults("") / 5


def test_a_virtual_gpu_is_one_core_and_ids_beyond_the_cores_go_round():
    cores = virtual_gpus.cores()
    code = "from handson.training import virtual_gpus; import os; virtual_gpus.pin({}); print(*os.sched_getaffinity(0))"
    for gpu in (0, len(cores), len(cores) + 1):
        done = run_to_end([sys.executable, "-c", code.format(gpu)], check=True)
        assert done.stdout.split() == [str(cores[gpu % len(cores)])]


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ([("a", 0)], "1 virtual GPU: a process with one thread on one core"),
        ([("a", 0), ("a", 1)], "2 virtual GPUs: processes with one thread each, on 2 cores"),
        ([("a", 0), ("b", 0)], "2 virtual GPUs: processes with one thread each, on 2 cores"),
        (
            [("a", 0), ("a", 1), ("a", 0), ("a", 1)],
            "4 virtual GPUs: processes with one thread each, sharing 2 cores equally",
        ),
        ([("a", 0), ("a", 0)], "2 virtual GPUs: processes with one thread each, sharing 1 core equally"),
    ],
)
def test_the_words_say_when_cores_are_shared(places, words):
    assert virtual_gpus.describe(places) == words
