"""Workers leave Ctrl-C to the process that started them, which hears it no matter when it comes."""

import os
import signal
import subprocess

import pytest

from handson.training.worker_processes import deaf_to_ctrl_c

BLOCKED = ["sed", "-n", "s/^SigBlk:\t*//p", "/proc/self/status"]


@pytest.fixture(autouse=True)
def handler():
    """What Ctrl-C does to this process is as before after each test."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def hears_ctrl_c():
    """Whether a program that is started now would notice Ctrl-C."""
    mask = int(subprocess.run(BLOCKED, capture_output=True, text=True, check=True).stdout, 16)
    return not mask >> signal.SIGINT - 1 & 1


def test_what_is_started_in_the_block_is_deaf_and_what_comes_later_is_not():
    with deaf_to_ctrl_c():
        assert not hears_ctrl_c()
    assert hears_ctrl_c()


def test_ctrl_c_in_the_block_counts_when_it_is_over():
    done = False
    with pytest.raises(KeyboardInterrupt):
        with deaf_to_ctrl_c():
            os.kill(os.getpid(), signal.SIGINT)
            done = True
    assert done


def test_ctrl_c_that_was_ignored_before_is_ignored_after_the_block():
    """As of a training that nohup, or a shell's background, protects."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with deaf_to_ctrl_c():
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
