"""The main process's side of a worker of our MultiprocessParallelUpdater: start it, send requests, read answers, detect
its death."""

import contextlib
import time
import warnings

from handson.chainer import shared_arrays, worker

from handson.errors import WorkerError
from handson.training import progress


class WorkerHandle:
    """A worker process that has started. ``gradients``: arrays to which it writes those of its last batch."""

    def __init__(self, context, name, index, gpu, earlier, parameter_memory, arrays, task):
        """Start a worker. ``task``: its model, converter and iterator; ``earlier``: the handles of workers started
        before."""
        self.name, self.gpu = name, gpu
        gradient_memory = shared_arrays.allocate(context, arrays)
        self.gradients = shared_arrays.views(gradient_memory, arrays)
        self._pipe, its_end = context.Pipe()
        self._note = progress.Note()
        forks = context.get_start_method() == "fork"
        inherited = [one._pipe for one in (*earlier, self)] if forks else []
        self._process = context.Process(
            target=worker.work,
            name=f"MultiprocessParallelUpdater {name}",
            args=(
                index,
                gpu,
                its_end,
                inherited,
                self._note if forks else None,
                *task,
                parameter_memory,
                gradient_memory,
            ),
        )
        with warnings.catch_warnings():
            # Python warns because of OpenBLAS's threads, but OpenBLAS supports fork
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            self._process.start()
        its_end.close()

    def ask(self, order):
        """Send "update", "iterator" or "stop". Raises WorkerError if the worker is dead."""
        try:
            self._pipe.send(order)
        except OSError:
            raise self._died() from None

    def answer(self, limit):
        """Return the worker's answer. Raises WorkerError if it fails, dies or takes longer than ``limit`` seconds."""
        until = time.monotonic() + limit
        try:
            while not self._pipe.poll(min(1, max(0, until - time.monotonic()))):
                if not self._process.is_alive() and not self._pipe.poll():
                    raise self._died()
                if time.monotonic() > until:
                    raise self._error(
                        f"has not finished its step within {limit} s: {self._note.where(self._process.pid)}"
                    )
            answer, failure = self._pipe.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if failure:
            what, traceback = failure
            error = self._error(what)
            error.add_note(traceback)
            raise error
        return answer

    def end(self, until):
        """Ask the worker to end, and kill it at the time ``until`` (time.monotonic())."""
        with contextlib.suppress(OSError):
            self._pipe.send("stop")
        self._process.join(max(0, until - time.monotonic()))
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()
        self._note.close()

    def _died(self):
        with contextlib.suppress(EOFError, OSError):  # a worker that fails sends the reason before it ends
            if self._pipe.poll():
                _, (what, _) = self._pipe.recv()
                return self._error(what)
        self._process.join(5)
        code = self._process.exitcode
        return self._error(f"was killed by signal {-code}" if code and code < 0 else f"ended with status {code}")

    def _error(self, what):
        return WorkerError(
            f"the worker of device {self.name!r} (virtual GPU {self.gpu}) {what}; all workers were stopped"
        )


def end_workers(workers, limit):
    """End all WorkerHandles of a list, by force after ``limit`` seconds, and empty the list."""
    until = time.monotonic() + limit
    while workers:
        workers.pop().end(until)
