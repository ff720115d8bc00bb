"""Reads what a student handed in, a folder or an archive, which may be hostile.

It reads only the files that are asked for, into memory and up to a size. It unpacks nothing under a name from the archive, so a link, a
device or a path that leads elsewhere can do no harm. Submissions with such entries are refused nevertheless: an honest one has none.
"""

import contextlib
import gzip
import io
import os
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from dataclasses import dataclass

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")
ENTRIES = 10_000
KEPT = 64_000_000  # bytes: the most that is read of all files together
UNPACKED = 500_000_000  # bytes: the most that an archive may unpack to
RATIO = 200  # an archive may unpack to this many times its own size, and
SMALL = 20_000_000  # bytes: to this size in any case, since repetitive texts compress well
HEADER = 64_000  # bytes: the largest header in a tar
CONTENTS = 4_000_000  # bytes: the longest list of files in a zip
IGNORED = {"__MACOSX", "__pycache__", "venv", "env", "node_modules", "handson", "results", "datasets", "jobs"}  # and .git, .venv, ...
BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, OverflowError, RecursionError,
          NotImplementedError, RuntimeError, IndexError, struct.error)  # fmt: skip


class Refused(Exception):
    """Why a submission is refused: a sentence without its subject, which is the name of the file or folder."""


@dataclass(frozen=True)
class Content:
    """What was read. files: {name: bytes} of the files asked for; problems: sentences on missing and other files; time: when the files or
    the archive were last written, in seconds since 1970."""

    files: dict
    problems: list
    time: float


def read(path, limits, known=()):
    """The Content of a folder or an archive. limits: {name of a file asked for: its largest size in bytes}; known: names of files that
    the course gives out, too. Raises Refused.

    The files may all be inside of one more folder. Hidden files, and files that belong to the course or that runs write, are ignored.
    """
    found, names, problems, kept = {}, {}, [], 0  # found: the folder around it ("" for none) -> name -> bytes
    newest = 0.0
    with contextlib.closing(_entries(path)) as entries:
        for number, (name, kind, time, content) in enumerate(entries):
            if number == ENTRIES:
                raise Refused(f"holds more than {ENTRIES:,} files: hand in exercises/ and notebooks/ alone")
            parts = _parts(name)
            if not parts or any(_ignored(part) for part in parts):
                continue
            if kind not in ("file", "folder"):
                raise Refused(f"holds {kind} ({shown(name)}): hand in plain files")
            if kind == "folder":
                continue
            if (clash := names.setdefault("/".join(parts).casefold(), parts)) is not parts:
                raise Refused(f"holds two files of one name ({shown('/'.join(clash))} and {shown(name)}): hand in one")
            for top, rest in ("", "/".join(parts)), (parts[0], "/".join(parts[1:])):
                if rest in limits:
                    with _readable():
                        data = content(limits[rest] + 1)
                    kept += len(data)
                    if kept > KEPT:
                        raise Refused(f"holds more than {KEPT // 10**6} MB of what is asked for: clear the notebooks' outputs")
                    found.setdefault(top, {})[rest] = data
                    newest = max(newest, time)
    if not found:
        raise Refused(f"holds none of the files asked for, such as {next(iter(limits))}: hand in exercises/ and notebooks/")
    top = "" if "" in found else min(found)
    if top and len(found) > 1:
        raise Refused(f"holds several submissions ({', '.join(f'{shown(top)}/' for top in sorted(found)[:3])}): hand in one")
    files = {name: data for name, data in found[top].items() if len(data) <= limits[name]}
    if not files:
        raise Refused("holds only files that are too large: clear the notebooks' outputs")
    for name in sorted(found[top].keys() - files):
        problems.append(f"{name} is larger than {limits[name] / 10**6:g} MB and was left out.")
    if missing := [name for name in limits if name not in found[top]]:
        problems.append(f"Missing: {_listed(missing)}.")
    wanted = {f"{top}/{name}" if top else name for name in (*limits, *known)}
    extra = ["/".join(parts) for parts in names.values() if parts[-1].endswith((".py", ".ipynb", ".sh"))]
    if extra := sorted(name for name in extra if name not in wanted):
        problems.append(f"Not asked for, and not looked at: {_listed(extra)}.")
    return Content(files, problems, newest)


def shown(name):
    """A name of any content as a short text that is safe to show."""
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)
    return text if len(text) <= 80 else f"{text[:60]}…{text[-19:]}"


def _listed(names):
    return ", ".join(shown(name) for name in names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _ignored(part):
    return part.startswith(".") or part in IGNORED or part.endswith(".egg-info")


def _parts(name):
    """The folders and the name of an entry, split at slashes and backslashes. Raises Refused if they lead out of the archive."""
    if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
        raise Refused(f"holds a file name that is not UTF-8 ({shown(name)}): rename it")
    name = name.replace("\\", "/")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or re.match(r"[A-Za-z]:", name) or ".." in parts or "\0" in name:
        raise Refused(f"holds a path that leads out of it ({shown(name)}): hand in exercises/ and notebooks/ alone")
    return parts


def _entries(path):
    """Yields (name, kind, time, content) for each entry. content(limit) reads up to `limit` bytes of it; call it before the next entry."""
    with _readable():
        if path.is_symlink():
            raise Refused("is a link: put the folder or the archive itself there")
        if path.is_dir():
            yield from _folder(path)
        elif not path.is_file() or not path.name.lower().endswith(SUFFIXES):
            raise Refused(f"is neither a folder nor an archive ({', '.join(SUFFIXES)}): hand in one of them")
        elif path.name.lower().endswith(".zip"):
            yield from _zip(path)
        else:
            yield from _tar(path)


@contextlib.contextmanager
def _readable():
    """In a `with`: turns the errors that broken archives cause into Refused."""
    try:
        yield
    except UnicodeDecodeError:  # from zipfile, for a name that is marked as UTF-8 and is not
        raise Refused("holds a file name that is not UTF-8: rename it") from None
    except BROKEN as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Refused(f"can't be read ({shown(reason)}): pack it anew") from None


def _folder(path):
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        for entry in os.scandir(path / inside):
            name = inside + entry.name
            if entry.is_symlink():
                yield name, "a link", 0.0, None
            elif entry.is_dir(follow_symlinks=False):
                if not _ignored(entry.name):
                    waiting.append(f"{name}/")
                yield name, "folder", 0.0, None
            elif entry.is_file(follow_symlinks=False):
                yield name, "file", entry.stat(follow_symlinks=False).st_mtime, lambda limit, path=entry.path: _plain(path, limit)
            else:
                yield name, "a device or a pipe", 0.0, None


def _plain(path, limit):
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Refused(f"holds something that is no plain file ({shown(os.path.basename(path))})")
        return file.read(limit)


class _ZipFile(io.FileIO):
    """A file that refuses large reads: zipfile reads a zip's whole list of files into memory."""

    def read(self, size=-1):
        if size is not None and size > CONTENTS:
            raise Refused(f"holds more than {ENTRIES:,} files: hand in exercises/ and notebooks/ alone")
        return super().read(size)


def _zip(path):
    time = path.stat().st_mtime
    with _ZipFile(path) as file, zipfile.ZipFile(file) as archive:
        _enough(sum(entry.file_size for entry in archive.infolist()), path)
        for entry in archive.infolist():
            kind = {stat.S_IFDIR: "folder", stat.S_IFLNK: "a link", stat.S_IFREG: "file", 0: "file"}
            kind = "folder" if entry.is_dir() else kind.get(stat.S_IFMT(entry.external_attr >> 16), "a device or a pipe")
            if entry.flag_bits & 0x41:
                raise Refused("is encrypted: pack it without a password")
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise Refused(f"is packed in an unusual way (method {entry.compress_type}): use the zip of your system")
            yield entry.filename, kind, time, lambda limit, entry=entry: _of_zip(archive, entry, limit)


def _of_zip(archive, entry, limit):
    with archive.open(entry) as file:
        return file.read(limit)


class _Forward:
    """A stream for tarfile that can only be read forwards, with a limit for each header and for all of it.

    Older versions of tarfile loop for ever at a negative size, and need hours for a header with very many digits.
    """

    def __init__(self, stream, path):
        self.stream, self.path, self.position = stream, path, 0

    def read(self, size):
        if size > HEADER:
            raise Refused("holds a file name or attribute of a size beyond reason: pack it anew")
        data = self.content(size)
        if re.search(rb"\d{100}", data):
            raise Refused("has a header that is none: pack it anew")
        return data

    def content(self, size):
        data = self.stream.read(size)
        self.position += len(data)
        _enough(self.position, self.path)
        return data

    def seek(self, position):
        if position < self.position:
            raise tarfile.ReadError("an entry of negative size")
        while self.position < position and self.content(min(position - self.position, 1_000_000)):
            pass

    def tell(self):
        return self.position


def _tar(path):
    time = path.stat().st_mtime
    with open(path, "rb") as file, contextlib.ExitStack() as stack:
        zipped = not path.name.lower().endswith(".tar")
        stream = _Forward(stack.enter_context(gzip.open(file)) if zipped else file, path)
        for member in tarfile.TarFile(fileobj=stream, mode="r"):
            if member.size < 0:
                raise tarfile.ReadError("an entry of negative size")
            kinds = {"a sparse file": member.issparse(), "file": member.isreg(), "folder": member.isdir(), "a link": member.issym() or member.islnk()}
            kind = next((kind for kind, is_it in kinds.items() if is_it), "a device or a pipe")
            yield member.name, kind, time, lambda limit, member=member: stream.content(min(limit, member.size))


def _enough(size, path):
    """Raise Refused if `size`, the unpacked bytes of an archive so far, is over the limit."""
    if size > min(UNPACKED, max(SMALL, RATIO * path.stat().st_size)):
        raise Refused(f"unpacks to more than {size // 10**6} MB: hand in exercises/ and notebooks/ alone")
