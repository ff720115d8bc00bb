"""Access to a class's submissions: a folder, or the zip of a learning platform. ``grader.instructors.collect`` calls
it.

A zip is read in place: at most one student's archive at a time is extracted.
"""

import contextlib
import re
import zipfile
from collections import defaultdict
from datetime import UTC, datetime

from grader.instructors import archives

HIDDEN = re.compile(r"(^|/)(\.(?!\.?/)|__MACOSX/)")


class OnDisk:
    """A file or a folder at the top of a folder of submissions, or below."""

    def __init__(self, path):
        self.path, self.name, self.time = path, path.name, path.lstat().st_mtime
        self.written = self.time
        self.is_link, self.is_folder = path.is_symlink(), path.is_dir() and not path.is_symlink()

    def inside(self):
        """Return the direct content of this folder, sorted by name. Raises OSError."""
        return [OnDisk(path) for path in sorted(self.path.iterdir())]

    @contextlib.contextmanager
    def source(self):
        """Context manager with the source for `archives.read`."""
        yield self.path

    def start(self, limit):
        """Return the first `limit` bytes of a file."""
        return archives.start_of(self.path, limit)


class InZip:
    """The same in a class's zip. path: its name there; infos: the entry of the file, or those of all files in the
    folder, without hidden ones. If all files are hidden they count, because a student has handed them in."""

    is_link, written = False, 0.0  # the zip has the time of the download

    def __init__(self, archive, path, infos):
        self.archive, self.path, self.all_infos = archive, path, infos
        self.infos = tuple(info for info in infos if not HIDDEN.search(info.filename[len(path) :])) or infos
        self.name, self.is_folder = path.rpartition("/")[2], infos[0].filename != path
        self.place = infos[0].header_offset
        self.time = self.moment(None).timestamp()

    def moment(self, zone):
        """Return when the newest file was written, on the clock of `zone`; None means this machine's zone. Zips do not
        contain the zone."""
        newest = max(info.date_time for info in self.infos)
        with contextlib.suppress(ValueError):  # zips can contain a 31st of February
            return datetime(*newest, tzinfo=zone).astimezone()
        return datetime(1980, 1, 1, tzinfo=UTC)

    def inside(self):
        return _tops(self.archive, self.infos, f"{self.path}/")

    @contextlib.contextmanager
    def source(self):
        if self.is_folder:
            yield archives.Part(self.archive, self.path, self.infos)
        else:
            with archives.taken_out(self.archive, self.infos[0]) as path:
                yield path

    def start(self, limit):
        return archives.start_in(self.archive, self.infos[0], limit)


@contextlib.contextmanager
def opened(submissions, is_submission):
    """Context manager with the top entries of a folder or a zip of submissions, sorted by name. is_submission: a
    function of a folder in a zip; a single top folder that is not a submission is replaced by its content. Raises
    OSError and zipfile.BadZipFile."""
    if submissions.is_dir():
        yield OnDisk(submissions).inside()
        return
    with zipfile.ZipFile(submissions) as archive:
        infos, before = [info for info in archive.infolist() if not info.is_dir()], ""
        tops = _tops(archive, infos, before)
        while len(tops) == 1 and tops[0].is_folder and not is_submission(tops[0]):
            before = f"{tops[0].path}/"
            tops = _tops(archive, tops[0].all_infos, before)
        yield tops


def _tops(archive, infos, before):
    of_top = defaultdict(list)
    for info in infos:
        of_top[info.filename[len(before) :].split("/")[0]].append(info)
    return [
        InZip(archive, before + top, tuple(of_top[top]))
        for top in sorted(of_top)
        if top and not HIDDEN.match(f"{top}/")
    ]
