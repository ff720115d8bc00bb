"""Profiles from files: nvprof's and nsys's SQLite, Chrome traces of torch.profiler and of our Chainer recorder.

A file that is none of them, or that is damaged, raises ProfileError, one sentence.
"""

import re
from pathlib import Path

from handson.profiling import rank_clocks
from handson.profiling.readers import chrome, sqlite
from handson.profiling.timeline import ProfileError, Run

SUFFIXES = (".json", ".json.gz", ".sqlite", ".db", ".nvvp", ".nvprof")
# other files of a run with the suffix of a profile
NO_PROFILES = re.compile(r"(result|pipeline|products|memory_rank\d+)\.json")


def read(path):
    """The Timelines in a file, one for each process; a rank that the file does not name stays None. Raises
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
        raise ProfileError(f"{path} has no events, since nothing was recorded: run more steps, or skip fewer (--skip)")
    for timeline in timelines:
        timeline.source = str(path)
    return timelines


def load(paths):
    """The Runs in files and folders, in the given order. A folder is a run; files of one folder are a run, too.

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
    """Give the next ranks, by process id, to processes that have none. Raises ProfileError if two processes have one
    rank."""
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
