"""Files that are either complete or not there: written beside their place, then renamed."""

import contextlib
import os
from pathlib import Path

COURSE = Path(__file__).resolve().parents[1]  # the folder that all rooms of the course are in


@contextlib.contextmanager
def written_aside(path, durable=True):
    """A new binary file that takes the name `path` when the block ends well, and is gone when it does not.

    The folder is made if needed; what was at `path` stays until the new file is complete and on the disk. durable: False does not wait
    for the disk, for what can be written again. Raises OSError.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{os.urandom(4).hex()}.part")
    try:
        with open(aside, "xb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
