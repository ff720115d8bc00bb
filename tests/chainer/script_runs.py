"""Runs the scripts of the Chainer track as a student does, and sees that they leave no process behind."""

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import uuid
from pathlib import Path

import numpy
from waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
# "multi_gpu" -> train_cifar_multi_gpu.py, "mnist" -> train_mnist.py
SCRIPTS = {
    path.stem.removeprefix("train_").removeprefix("cifar_"): path
    for path in sorted((ROOT / "solutions").glob("[0-9]*/chainer/*.py"))
}
PATIENCE = 60  # seconds
BIN = sysconfig.get_path("scripts")
PYTHON = [sys.executable, "-W", "error", "-W", "default:optimizer.lr is changed"]
SIZE = 16  # pixels


def write_data_set(path):
    """A data set so small that an epoch takes a tenth of a second: 200 images, of bright and of dark squares, 41 for
    testing."""
    random = numpy.random.RandomState(0)
    arrays = {"classes": numpy.array(["dark", "bright"]), "maximum": numpy.uint8(255)}
    for part, samples in ("train", 200), ("test", 41):
        labels = random.randint(2, size=samples).astype("uint8")
        arrays[f"{part}_labels"] = labels
        arrays[f"{part}_images"] = (
            random.randint(128, size=(samples, 1, 8, 8)).astype("uint8") + 64 * labels[:, None, None, None]
        )
    numpy.savez(path, **arrays)
    return path


class Run:
    """A started script. `ranks`: of mpiexec, None for none; `options` may be several lists, one for each rank."""

    def __init__(self, script, *options, ranks=None, folder):
        self.mark = f"HANDSON_TEST={uuid.uuid4().hex}"
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PBS_", "SLURM_"))}
        environment |= {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HANDSON_TEST": self.mark.split("=")[1],
            "PYTHONFAULTHANDLER": "1",
        }
        command = [*PYTHON, str(SCRIPTS.get(script, script))]
        if ranks is None:
            words = [*command, *options]
        elif options and isinstance(options[0], list):
            words = [f"{BIN}/mpiexec"]
            for index, own in enumerate(options):
                words += [":"] * (index > 0) + ["-n", "1", *command, *own]
        else:
            words = [f"{BIN}/mpiexec", "-n", str(ranks), *command, *options]
        self.process = subprocess.Popen(
            list(map(str, words)),
            env=environment,
            cwd=folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def end(self):
        """Wait for its end, and for that of all that it started; itself, with `status`, `out` and `errors`."""
        try:
            self.out, self.errors = self._printed()
            self.status = self.process.returncode
            wait_until(lambda: not self.processes(), lambda: f"nothing is left running, but: {self.processes()}")
        finally:
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return self

    def _printed(self):
        try:
            return self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            running = self.processes()
            for pid in [pid for pid, command in running.items() if command.startswith(sys.executable)]:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGABRT)  # Python prints where it stands
            out, errors = self.process.communicate(timeout=PATIENCE)
            raise AssertionError(
                f"it still ran after {PATIENCE} s: {running}; it had printed:\n{out}\n{errors}"
            ) from None

    def processes(self):
        """pid -> command line of all living processes of this run."""
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if self.mark.encode() in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    if command := Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode():
                        found[int(name)] = command
        return found


def wait_for(path, run):
    """Wait until the run has written `path`."""
    wait_until(lambda: path.exists() or run.process.poll() is not None, path)
    assert path.exists(), run.end().errors
