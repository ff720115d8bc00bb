"""Temporary folders that are removed even if their process is killed: the next process removes them."""

import contextlib
import fcntl
import os
import shutil
import tempfile


@contextlib.contextmanager
def temporary_folder(prefix):
    """Context manager with the path of a new folder for this user only. If this process dies, `remove_orphans` removes
    it later.

    A lock on the folder shows that its process is alive: the system releases it at any end of the process.
    """
    while True:
        folder = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder.name, os.O_RDONLY)
            with contextlib.suppress(OSError):  # without locks, `remove_orphans` gets none either
                fcntl.flock(lock, fcntl.LOCK_SH)
            if os.path.isdir(folder.name):  # otherwise `remove_orphans` came before the lock
                break
            os.close(lock)
        folder.cleanup()
    try:
        yield folder.name
    finally:
        if os.path.islink(folder.name):  # code that ran in the folder has replaced it by a link
            os.unlink(folder.name)
        folder.cleanup()
        os.close(lock)


def remove_orphans(prefix):
    """Remove this user's temporary folders whose names begin with `prefix` and whose processes have ended."""
    with os.scandir(tempfile.gettempdir()) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(prefix)]
    for path in found:
        with contextlib.suppress(OSError):  # it belongs to another user, is in use, or is gone
            if os.path.islink(path) and os.lstat(path).st_uid == os.geteuid():
                os.unlink(path)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)
