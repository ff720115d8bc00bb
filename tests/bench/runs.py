"""Starting training scripts from benchmarks, and reading what they measured."""

import os
import subprocess
import sys
from pathlib import Path

from handson.training.results import read

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {
    (path.parts[-3][3:], path.parts[-2]): path for path in ROOT.glob("solutions/[0-9][0-9]_*/*/train_cifar_*.py")
}
LIMIT = 600  # seconds for one training run


def start(task, out, *options, track="pytorch", launcher=()):
    """Start a training script, its output thrown away; returns the Popen and `out`."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [*launcher, sys.executable, str(SCRIPTS[task, track]), "-o", str(out), *options]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL), out


def finish(*started):
    """Wait for what `start` returned; the Results of the runs."""
    for process, out in started:
        if process.wait(LIMIT):
            sys.exit(f"the run in {out} failed with status {process.returncode}")
    return [read(out) for _, out in started]


def rate(result):
    """images/s in training iterations alone: evaluation and snapshots belong to no speed-up."""
    return result.images / result.train_seconds
