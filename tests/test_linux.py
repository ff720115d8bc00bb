"""What is asked of Linux about processes."""

import os
import subprocess

from handson import linux


def test_a_process_that_has_ended_does_not_run_whether_or_not_its_parent_has_asked():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert linux.runs(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays
        assert not linux.runs(process.pid)
    assert not linux.runs(process.pid)
