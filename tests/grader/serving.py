"""``python -m grader serve`` as a person runs it, for tests."""

import contextlib
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STARTING, ENDING = 60, 30  # seconds; far more than it takes


@contextlib.contextmanager
def served(folder, *options):
    """The address of live pages on the gradebook in `folder`, with the token in it. Ctrl-C ends them, and that must be
    clean."""
    command = [sys.executable, "-m", "grader", "serve", str(folder), "--port", "0", *options]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert select.select([process.stdout], [], [], STARTING)[0], "it said nothing"
            line = process.stdout.readline()
            assert "http" in line, line + process.stderr.read()
            yield re.search(r"http://\S+", line)[0]
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=ENDING)
            assert (process.returncode, errors) == (0, "") and out.splitlines()[-1].startswith("Ended."), out + errors
        finally:
            process.kill()
