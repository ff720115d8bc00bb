"""``python -m handson submit``: pack a student's exercises and notebooks into one zip, and copy it to the site's folder
for submissions, if there is one.

Results, data sets and the output of jobs are left out. The same work gives the same zip, so its digest shows that
nothing was changed later.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from handson import linux
from handson.cluster import site as sites
from handson.errors import OneSentence
from handson.files import course_folder, written_aside, zipped
from handson.language import speak

ROOMS = ("exercises", "notebooks")
LEFT_OUT = {"results", "datasets", "__pycache__", "venv", "env"}  # and hidden folders
# bytes of a file that is graded; files of other kinds stay out
LARGEST = {".ipynb": 20_000_000, ".py": 1_000_000, ".sh": 1_000_000}
NAME = re.compile(r"[^\W_][\w .@+-]{0,98}[\w@+-]|[^\W_]")
MADE_HERE = b"handson submit"  # the comment in the zip


class SubmitError(OneSentence, OSError):
    """Nothing is packed or copied; the message gives the reason."""


def submit(name=None, folder=None, checked=False, drop=True, say=speak):
    """Pack the course in `folder`, by default the one around the working directory, into NAME.zip there. Copy it to the
    drop folder of the chosen site, if it has one and `drop` is true. checked: run all checks first. Return the path of
    the zip. Raises OneSentence errors."""
    name, folder = name or linux.user().pw_name, folder or course_folder()
    if not NAME.fullmatch(name):
        raise SubmitError(
            f"{name!r:.60} is not a valid file name here: use letters, digits, spaces and . @ + - with --name"
        )
    target = sites.load().drop if drop else None
    files, problems = packed(folder)
    for problem in problems:
        say(problem)
    if not files:
        raise SubmitError(f"{folder} has no exercises and no notebooks: change to the folder of the course")
    if checked:
        check(folder, say)
    data = zipped(files, MADE_HERE)
    digest, now = hashlib.sha256(data).hexdigest(), time.gmtime()
    path = folder / f"{name}.zip"
    _refuse_other(path)
    _written(path, data)
    handed_in = None
    try:
        handed_in = (
            _dropped(data, Path(target), f"{name}.{time.strftime('%Y%m%dT%H%M%SZ', now)}.{digest[:12]}.zip", path)
            if target
            else None
        )
    finally:
        receipt = _receipt(path, handed_in, files, problems, digest, now)
        _written(folder / f"{name}.receipt.txt", receipt.encode())
        say(receipt.rstrip())
    return path


def packed(folder):
    """Return ({name: bytes}, sentences) for the exercises and notebooks in a course's folder. The sentences are on
    empty, unreadable, omitted and missing files."""
    files, problems = {}, []
    for room in ROOMS:
        if not (folder / room).is_dir():
            problems.append(f"{room}/ is missing in {folder}.")
        for place, folders, names in os.walk(folder / room):
            folders[:] = sorted(
                one
                for one in folders
                if one not in LEFT_OUT and not one.startswith(".") and not Path(place, one).is_symlink()
            )
            for path in (
                Path(place, one) for one in sorted(names) if Path(one).suffix in LARGEST and not one.startswith(".")
            ):
                name = str(path.relative_to(folder))
                data, problem = _read(path, name)
                if problem:
                    problems.append(f"{problem}.")
                if data:
                    files[name] = data
    return files, problems


def _read(path, name):
    """Return (bytes, problem or None) of a file called `name`; without bytes, it is left out."""
    try:
        if path.is_symlink():
            return None, f"{name} is a link, so it is left out: put a copy of the file there"
        if not stat.S_ISREG(path.stat().st_mode):
            return None, f"{name} is not a regular file, so it is left out"
        if path.stat().st_size > LARGEST[path.suffix]:
            cure = ": clear its outputs" if path.suffix == ".ipynb" else ""
            return None, f"{name} is larger than {LARGEST[path.suffix] / 10**6:g} MB, so it is left out{cure}"
        data = path.read_bytes()
    except OSError as error:
        return None, f"{name} cannot be read ({error.strerror}), so it is left out"
    if not data.strip():
        return None, f"{name} is empty, so it is left out"
    try:
        if path.suffix == ".sh" and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
            return data, None  # in a shell script, a letter of another encoding is just a byte
        if path.suffix != ".ipynb":
            data.decode()
        elif not isinstance(json.loads(data).get("cells"), list):
            return data, f"{name} is not a notebook: it is packed, but cannot be graded"
    except UnicodeDecodeError:
        return data, f"{name} is not text in UTF-8: it is packed, but cannot be graded"
    except (ValueError, AttributeError, RecursionError):
        return data, f"{name} is not a notebook: it is packed, but cannot be graded"
    return data, None


def check(folder, say):
    """Run the check of each task in the course's folder, as ``python -m grader check`` does, and report incomplete
    tasks."""
    tasks = sorted(
        {path.stem for path in (folder / "notebooks").glob("[0-9][0-9]_*.ipynb")}
        | {path.name for path in (folder / "exercises").glob("[0-9][0-9]_*")}
    )
    open_tasks = []
    for task in (task.split("_", 1)[1] for task in tasks):
        say(f"{task}:")
        if subprocess.run([sys.executable, "-m", "grader", "check", task], cwd=folder).returncode:
            open_tasks.append(task)
    say(
        f"Not complete: {', '.join(open_tasks)}. The work is packed anyway."
        if open_tasks
        else "All tasks are complete."
    )


def _refuse_other(path):
    """Raise SubmitError if `path` is a file that this command has not created."""
    if path.exists():
        try:
            with zipfile.ZipFile(path) as pack:
                ours = pack.comment == MADE_HERE
        except (OSError, zipfile.BadZipFile):
            ours = False
        if not ours:
            raise SubmitError(
                f"{path} already exists, and was not created by this command: move it away, or choose another --name"
            )


def _written(path, data):
    try:
        with written_aside(path) as file:
            file.write(data)
    except OSError as error:
        raise SubmitError(
            f"{path} cannot be written ({error.strerror}): free some disk space, then run the same command again"
        ) from None


def _dropped(data, folder, name, path):
    """Write `data` to the drop folder under an unused name, completely or not at all, readable for graders. Return its
    path."""
    aside, target = folder / f".{name}.part", folder / name
    try:
        mode = folder.stat().st_mode
        if mode & stat.S_IROTH and not mode & stat.S_ISGID:
            raise SubmitError(
                f"everybody could read your work in {folder}, so it stays in {path}: ask your instructor to protect"
                " that folder (chmod 3733)"
            )
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            # readable for the folder's group, or only under a name that is hard to guess
            os.fchmod(file.fileno(), 0o640 if mode & stat.S_ISGID else 0o644)
        with contextlib.suppress(FileExistsError):  # the same work in the same second
            _named(aside, target)
        return target
    except OSError as error:
        if isinstance(error, OneSentence):
            raise
        raise SubmitError(
            f"{folder} did not accept the file ({error.strerror}), so your work is in {path}: try again, or give it"
            " to your instructor"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def _named(aside, target):
    """Give a complete file its name, without replacing another file."""
    try:
        os.link(aside, target)
    except OSError as error:
        # file systems without hard links
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS) or target.exists():
            raise
        os.rename(aside, target)


def _receipt(path, handed_in, files, problems, digest, now):
    kinds = [f"{sum(name.startswith(room) for name in files)} in {room}/" for room in ROOMS]
    lines = [
        f"Packed: {path.name}, {len(files)} files ({', '.join(kinds)})",
        f"Folder: {path.parent}",
        f"Time:   {time.strftime('%Y-%m-%d %H:%M:%S', now)} UTC",
        f"SHA256: {digest}",
        (
            f"Handed in: {handed_in}"
            if handed_in
            else f"Not handed in yet: upload {path.name} where your course collects it."
        ),
    ]
    return "\n".join([*lines, *problems]) + "\n"
