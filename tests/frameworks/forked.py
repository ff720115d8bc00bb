"""Processes for tests: forked from one that has imported TensorFlow already, which takes as long as all else that they
do."""

import multiprocessing
import os
import runpy
import sys
import traceback
from pathlib import Path

from handson import frameworks
from handson.training import tensorflow_rendezvous as rendezvous

LIMIT = 100  # seconds for a process, on a busy machine


def context():
    """The context of multiprocessing. TensorFlow computes nothing before the fork, because its threads would be missing in
    the new process."""
    frameworks.add()  # each process gets this one's path, whatever it was forked from
    found = multiprocessing.get_context("forkserver")
    of_systems = [
        "handson.accelerate",
        "handson.tensorflow.model",
        "handson.tensorflow.workers",
        "handson.jax.reports",
        "handson.lightning.reports",
        "accelerate",
    ]
    of_course = ["handson.training.epoch_table", "handson.training.results", "oracle"]
    found.set_forkserver_preload(of_systems + of_course)
    return found


class Process:
    """Runs ``function(*arguments)`` in a process of its own, which then waits until it is ended."""

    def __init__(self, function, *arguments):
        self.ours, theirs = multiprocessing.Pipe()
        self.process = context().Process(target=_run, args=(theirs, function, arguments), daemon=True)
        self.process.start()
        theirs.close()

    def result(self):
        """What the function has returned. Fails if it raised, or the process ended."""
        assert self.ours.poll(LIMIT), f"no answer after {LIMIT} s"
        kind, value = self.ours.recv()
        assert kind == "returned", value
        return value

    def end(self):
        """Let it end: TensorFlow's processes break each other's connections."""
        self.process.kill()
        self.process.join(LIMIT)


def together(function, *arguments_of_each):
    """What the function returns in each of several processes that run at the same time."""
    processes = [Process(function, *arguments) for arguments in arguments_of_each]
    try:
        return [one.result() for one in processes]
    finally:
        for one in processes:
            one.end()


def _run(theirs, function, arguments):
    try:
        theirs.send(("returned", function(*arguments)))
    except BaseException:
        theirs.send(("raised", traceback.format_exc()))
    theirs.poll(LIMIT)
    os._exit(0)


class Script:
    """A training script that runs as in a shell: `status`, `out` and `errors` once it has ended."""

    def __init__(self, path, folder, *words, **environment):
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.process = context().Process(
            target=_be_script, args=(str(path), str(folder), [*map(str, words)], environment)
        )
        self.process.start()

    def ended(self):
        self.process.join(LIMIT)
        if self.process.exitcode is None:
            self.process.kill()
        self.status, self.out, self.errors = (
            self.process.exitcode,
            *((self.folder / name).read_text() for name in ("stdout", "stderr")),
        )
        return self


def _note_images(path):
    """Write the images of each training step to a file, as a list of arrays: those that `enlarge` gets while gradients
    are computed."""
    import pickle

    import torch

    from handson.training import data

    enlarge, steps = data.enlarge, []

    def noting(images, size):
        if torch.is_grad_enabled():
            steps.append(images.numpy().copy())
            path.write_bytes(pickle.dumps(steps))
        return enlarge(images, size)

    data.enlarge = noting


def _be_script(path, folder, words, environment):
    os.chdir(folder)
    os.environ.update(environment)
    rendezvous.LIMIT = float(environment.get("HANDSON_MEETING", rendezvous.LIMIT))  # read when it was imported
    for name, number in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY, 0o644), number)
    if "NOTED" in environment:
        _note_images(Path(environment["NOTED"]))
    sys.argv, sys.path[0:0] = [path, *words], [str(Path(path).parent)]
    sys.stdout, sys.stderr = (open(number, "w", 1, closefd=False) for number in (1, 2))
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else int(end.code is not None))
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)
