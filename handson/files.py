"""Write files completely or not at all: they are written next to their place, then renamed."""

import contextlib
import io
import os
from pathlib import Path

COURSE = Path(__file__).resolve().parents[1]  # the root of the repository, or of the students' copy


def course_folder():
    """Return the folder with exercises/ that contains the working directory; otherwise the folder of this package."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / "exercises").is_dir()), COURSE)


@contextlib.contextmanager
def written_aside(path, durable=True):
    """Open a new binary file. It gets the name `path` when the block ends without an error; otherwise it is removed.

    The folder is created if needed. An old file at `path` stays until the new one is complete and on the disk.
    durable=False does not wait for the disk, for files that can be written again. Raises OSError.
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


def add_to_zip(pack, name, data, mode=0o644, day=(1980, 1, 1)):
    """Add a file to an open ZipFile. Its time does not depend on the file's time, so that the same files give the same
    zip. data: bytes; mode: its permissions; day: its date."""
    import zipfile  # most users of this module don't need it

    entry = zipfile.ZipInfo(name, (*day, 0, 0, 0))
    entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, (0o100000 | mode) << 16
    pack.writestr(entry, data)


def zipped(files, comment=b""):
    """Return the bytes of a zip, always the same for the same files. files: {name: bytes}."""
    import zipfile

    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as pack:
        pack.comment = comment
        for name in sorted(files):
            add_to_zip(pack, name, files[name])
    return data.getvalue()
