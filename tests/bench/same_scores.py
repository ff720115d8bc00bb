"""Scores: twenty submissions, graded twenty times on an idle and twenty times on a loaded machine, as
tests/grader/test_same_scores.py does."""

import os
import subprocess
import sys
import time
from pathlib import Path

TEST = Path(__file__).resolve().parents[1] / "grader/test_same_scores.py"
REPETITIONS = 20


def measure(folder):
    """Rows (what, value, target)."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "pytest", TEST, "--timeout=600", f"--basetemp={folder / 'pytest'}"]
    done = subprocess.run(
        command,
        cwd=TEST.parents[2],
        env=os.environ | {"HANDSON_REPETITIONS": str(REPETITIONS)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        print(done.stdout + done.stderr)
    return [
        (
            f"20 submissions graded {REPETITIONS} times, idle and loaded: identical scores",
            "no" if done.returncode else "yes",
            "yes",
        ),
        ("  minutes that took", f"{(time.perf_counter() - begin) / 60:.1f}", ""),
    ]
