"""What a class handed in: a folder, or the one zip that a learning platform gives out. Called by
``grader.instructors.collect``.

A zip is read where it is: at most one student's archive at a time is taken out of it.
"""

import contextlib
import re
import zipfile
from collections import defaultdict
from datetime import UTC, datetime

from grader.instructors import archives

HIDDEN = re.compile(r"(^|/)(\.(?!\.?/)|__MACOSX/)")


class OnDisk:
    """A file or a folder at the top of a folder of submissions, or inside of one there."""

    def __init__(self, path):
        self.path, self.name, self.time = path, path.name, path.lstat().st_mtime
        self.written = self.time
        self.is_link, self.is_folder = path.is_symlink(), path.is_dir() and not path.is_symlink()

    def inside(self):
        """What is directly in this folder, sorted by name. Raises OSError."""
        return [OnDisk(path) for path in sorted(self.path.iterdir())]

    @contextlib.contextmanager
    def source(self):
        """In a `with`: what `archives.read` reads."""
        yield self.path

    def start(self, limit):
        """The first `limit` bytes of a file."""
        return archives.start_of(self.path, limit)


class InZip:
    """The same, in the zip of a class. path: its name there; infos: the entry of the file, or those of all files in the
    folder, without hidden ones. If all of them are hidden they count: somebody has handed them in."""

    is_link, written = False, 0.0  # platforms write the time of the download

    def __init__(self, archive, path, infos):
        self.archive, self.path, self.all_infos = archive, path, infos
        self.infos = tuple(info for info in infos if not HIDDEN.search(info.filename[len(path) :])) or infos
        self.name, self.is_folder = path.rpartition("/")[2], infos[0].filename != path
        self.place = infos[0].header_offset
        self.time = self.moment(None).timestamp()

    def moment(self, zone):
        """When the newest file was written, on clocks of `zone`; None: of this machine. Zips don't say whose clocks
        they mean."""
        newest = max(info.date_time for info in self.infos)
        with contextlib.suppress(ValueError):  # zips can hold a 31st of February
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
    """In a `with`: what is at the top of a folder or a zip of submissions, sorted by name. is_submission: a function of
    a folder in a zip; of one folder that is none, what is in it is taken. Raises OSError and zipfile.BadZipFile."""
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
