"""nbgrader in a virtual environment of its own, made once in the user's cache folder: for its tests, and for benchmarks."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

NBGRADER = "nbgrader==0.9.6"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "handson-tests"


def commands():
    """The folder with nbgrader's commands."""
    home = CACHE / f"{NBGRADER}-{sys.version_info.major}.{sys.version_info.minor}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True, timeout=120)
            subprocess.run([home / "bin/pip", "install", "-q", "--disable-pip-version-check", NBGRADER], check=True, timeout=600)
            (home / "complete").touch()
    return home / "bin"


def environment(bin, folder):
    """Variables with which nbgrader, whose commands are in `bin`, runs notebooks in our Python. Its kernel goes below `folder`."""
    kernel = folder / "jupyter/kernels/python3/kernel.json"
    kernel.parent.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
    path = f"{bin}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"JUPYTER_PATH": str(folder / "jupyter"), "PATH": path}
