"""Recognises the files that are asked for among those that a student handed in, whatever became of their names on the
way.

Called by ``grader.instructors.archives``. Capitals don't count. A notebook that Jupyter, a browser or a learning
platform has renamed (``01_single_gpu-Copy1.ipynb``, ``01_single_gpu (1).ipynb``, ``01_single_gpu-1.ipynb``) counts if
there is none of the right name, and so does a file that lies outside of its folder, where its name leaves no doubt
which one it is.
"""

import re

COPY = re.compile(
    r"(?P<stem>.+?)(?:-copy(\d*)|-(\d+)| ?\((\d+)\)| - copy(?: \((\d+)\))?| copy(?: (\d+))?)", re.IGNORECASE
)
AROUND = 3  # folders, at most, that may be around a submission


class Recogniser:
    """For the `names` asked for, such as "notebooks/02_multi_gpu.ipynb"."""

    def __init__(self, names):
        self.exact = {name.casefold(): name for name in names}
        self.ends = {}  # the end of a name, from some folder on -> the name, or None if several end so
        for name in names:
            parts = name.casefold().split("/")
            for begin in range(1, len(parts)):
                end = "/".join(parts[begin:])
                self.ends[end] = None if end in self.ends else name

    def __call__(self, parts):
        """(the folders around, the name, rank) for the path with these `parts`. The first is None for a file outside of
        its folder, the name "" for a path that is not asked for. Of two paths with one name the one of the lower rank
        counts; 0 is the name itself."""
        folded = [part.casefold() for part in parts]
        stem, number = _original(folded[-1])
        arounds = range(min(AROUND + 1, len(parts)))
        # of copies, the last one counts
        for path, rank in ((folded, 0), ([*folded[:-1], stem], 2 - number / (number + 1))):
            for around in arounds:
                if name := self.exact.get("/".join(path[around:])):
                    return "/".join(parts[:around]), name, rank
            for around in arounds:
                if name := self.ends.get("/".join(path[around:])):
                    return None, name, rank + 3
        return None, "", 0


def _original(name):
    """(the name that a copy was made of, the copy's number) for a file's name in small letters; the name itself and 0
    if it is no copy."""
    stem, dot, suffix = name.rpartition(".")
    if dot and (copy := COPY.fullmatch(stem)):
        return f"{copy['stem']}.{suffix}", int(next((digits for digits in copy.groups()[1:] if digits), "0")[-9:])
    return name, 0
