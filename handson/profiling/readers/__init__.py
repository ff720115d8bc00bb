"""Read profiles from files: SQLite files of nvprof and nsys, Chrome traces of torch.profiler and of the course's
Chainer recorder.

Files of any other format, and damaged files, raise ProfileError with one sentence.
"""

import re
from pathlib import Path

from handson.profiling import rank_clocks
from handson.profiling.readers import chrome, sqlite
from handson.profiling.timeline import ProfileError, Run

SUFFIXES = (".json", ".json.gz", ".sqlite", ".db", ".nvvp", ".nvprof")
# other files of a run with a profile's suffix
NO_PROFILES = re.compile(r"(result|pipeline|products|memory_rank\d+)\.json")


def read(path):
    """Return the Timelines in a file, one for each process. A rank that the file does not name is None. Raises
    ProfileError."""
    path = Path(path)
    try:
        with open(path, "rb") as file:
            begin = file.read(4096)
        if not begin:
            raise ProfileError(f"{path} is empty: its recording was cut off; record again")
        if begin.startswith(b"SQLite format 3\0"):
            timelines = sqlite.read(path)
        elif begin.startswith(b"\x1f\x8b") or begin.lstrip()[:1] in (b"{", b"["):
            timelines = [chrome.read(path)]
        elif path.suffix in (".nsys-rep", ".qdrep"):
            raise ProfileError(
                f"{path} is in Nsight Systems' own format: convert it with nsys export --type sqlite {path}"
            )
        else:
            raise ProfileError(
                f"{path} is not a profile of nvprof, nsys or torch.profiler: give an SQLite file or a Chrome trace"
            )
    except OSError as error:
        raise ProfileError(
            f"{path} cannot be read ({error.strerror or error}): give the files or folders of profiles"
        ) from None
    if not any(len(timeline) for timeline in timelines):
        raise ProfileError(
            f"{path} has no events, because nothing was recorded: run more steps, or skip fewer (--skip)"
        )
    for timeline in timelines:
        timeline.source = str(path)
    return timelines


def load(paths):
    """Return the Runs in files and folders, in the given order. A folder is a run; so are all files of one folder.

    The clocks of different machines are aligned. Raises ProfileError.
    """
    groups = {}
    for path in map(Path, paths):
        files = _profiles(path) if path.is_dir() else [path]
        group = groups.setdefault(path if path.is_dir() else path.parent, [])
        group += [file for file in files if file not in group]
    return [_run(folder, files) for folder, files in groups.items()]


def _profiles(folder):
    files = sorted(
        path for path in folder.iterdir() if path.name.endswith(SUFFIXES) and not NO_PROFILES.fullmatch(path.name)
    )
    if not files:
        raise ProfileError(
            f"{folder} has no profiles ({', '.join(SUFFIXES)}): give the folder that python -m handson profile wrote"
        )
    return files


def _run(folder, files):
    timelines = [timeline for file in files for timeline in read(file)]
    _give_ranks(timelines)
    timelines.sort(key=lambda timeline: timeline.rank)
    offsets = rank_clocks.align(timelines)
    result = None
    if (folder / "result.json").is_file():
        from handson.training import results

        result = results.read(folder)
    return Run(folder.resolve().name, timelines, offsets, getattr(result, "usage", None), result)


def _give_ranks(timelines):
    """Number the processes without a rank by process id, starting at the next free rank. Raises ProfileError if two
    processes have the same rank."""
    taken = {}
    for timeline in timelines:
        if timeline.rank is not None and (other := taken.setdefault(timeline.rank, timeline)) is not timeline:
            raise ProfileError(
                f"{other.source} and {timeline.source} are both of rank {timeline.rank}: keep each run's profiles in a"
                " folder of its own"
            )
    if len(sizes := {timeline.size for timeline in timelines if timeline.size}) > 1:
        raise ProfileError(
            f"the profiles in {Path(timelines[0].source).parent} are of runs with"
            f" {' and '.join(map(str, sorted(sizes)))} ranks: keep each run's profiles in a folder of its own"
        )
    free = (rank for rank in range(len(timelines)) if rank not in taken)
    for timeline in sorted((one for one in timelines if one.rank is None), key=lambda one: (one.pid or 0, one.source)):
        timeline.rank = next(free)
