"""The output of a training run that ends with an error: one sentence if the user can fix it; otherwise a traceback, and
the name of the rank if there are several. All ranks end with the first one that fails (see `rank_watcher`)."""

import atexit
import os
import re
import signal
import sys
import time

from handson.errors import OneSentence, Stopped, TrackError, WorkerError, in_a_sentence, say
from handson.language import speak
from handson.training import progress, rank_watcher
from handson.training.launch import launcher_rank, no_restart
from handson.training.worker_processes import kill_all

COME = 5  # seconds in which all ranks find a problem that one rank has found, on a busy machine
# gloo's errors when a rank has died
LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")


def install():
    """Handle uncaught errors of this process as described above, from now on."""
    sys.excepthook = lambda kind, error, trace: end(error)


def end(error):
    """End this process with an error, which may be a SystemExit. Return if Python should end as usual."""
    sys.stderr = sys.__stderr__  # torch.distributed's excepthook captures the output of the former hook
    error = _of_spawned_rank(in_a_sentence(error))
    if progress.has_watcher():
        _end_rank(error)
    if isinstance(error, Stopped):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not interrupt the clean-up
        kill_all()
    if isinstance(error, SystemExit):
        os._exit(_status(error))
    if not isinstance(error, OneSentence):
        return sys.__excepthook__(type(error), error, error.__traceback__)
    _print_notes(error)
    say(error)
    atexit._run_exitfuncs()  # ends worker processes, for example; Python's own exit would have status 1
    sys.stdout.flush()
    os._exit(error.status)


def _of_spawned_rank(error):
    """Return what to print for an error of torch.multiprocessing.spawn after a rank has ended: a WorkerError, or a
    SystemExit if the rank has printed a sentence for the user. Any other error is returned unchanged."""
    if type(error).__name__ not in ("ProcessExitedException", "ProcessRaisedException"):
        return error
    name = rank_watcher.name(error.error_index)
    if type(error).__name__ == "ProcessExitedException":
        how = f"was killed by {error.signal_name}" if error.signal_name else f"ended with status {error.exit_code}"
        return SystemExit(2) if error.exit_code == 2 else WorkerError(f"{name} {how}; all ranks end")
    traceback = error.msg.strip()
    if sentence := re.search(r"^handson\.[\w.]+: (.+)\Z", traceback, re.MULTILINE):
        return TrackError(f"{name}: {sentence[1]}")
    failure = WorkerError(f"{name} failed; all ranks end")
    failure.add_note(traceback)
    return failure


def _end_rank(error):
    """End this rank. Only rank 0 prints an error that all ranks have found; the others print it if rank 0 does not."""
    name, of_all = rank_watcher.name(), getattr(error, "on_all_ranks", False)
    first = launcher_rank() == 0
    lost = isinstance(error, RuntimeError) and any(sign in str(error) for sign in LOST_PEER)
    if of_all and not first or lost:
        time.sleep(COME)  # rank 0, or the watcher of the rank that died, prints the error and ends all ranks
    if isinstance(error, Stopped) and progress.is_watched():
        pass  # the watcher of rank 0 reports it
    elif isinstance(error, OneSentence):
        _print_notes(error)
        say(error if of_all and first else f"{name}: {error}")
    elif isinstance(error, SystemExit):
        report(f"{name} ended with {error.code!r}; all ranks end")
    elif lost:
        report(f"{name} lost its connection to another rank, which has died")
    else:
        sys.__excepthook__(type(error), error, error.__traceback__)
        if not isinstance(error, (RuntimeError, OSError)):  # these two may come from another rank that has died
            no_restart()
        report(f"{name} failed with {type(error).__name__}: {error}; all ranks end")
    leave(_status(error))


def leave(status):
    """End this rank immediately, after it has printed the reason. It waits for no other rank, unlike the end of MPI.
    Unless the status is 0, all ranks end with it."""
    sys.stdout.flush()
    if status == OneSentence.status:
        no_restart()
    by_watcher = progress.tell_end(status) and progress.ends_by_watcher()
    MPI = sys.modules.get("mpi4py.MPI")
    if status and MPI and MPI.Is_initialized() and MPI.COMM_WORLD.size > 1 and not by_watcher:
        time.sleep(0.2)  # mpiexec reads the output in this time; it ignores it after the abort below
        MPI.COMM_WORLD.Abort(status)
    os._exit(status)


def _status(error):
    if isinstance(error, OneSentence):
        return error.status
    return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1


def _print_notes(error):
    for note in getattr(error, "__notes__", []):
        print(note, file=sys.stderr)


def report(sentence):
    """Print a sentence on standard error."""
    speak(sentence, file=sys.stderr, flush=True)
