"""Recognise the requested files among those that a student handed in, even if they were renamed.

Called by ``grader.instructors.archives``. Capitals do not matter. A notebook that Jupyter, a browser or a learning
platform has renamed (``01_single_gpu-Copy1.ipynb``, ``01_single_gpu (1).ipynb``, ``01_single_gpu-1.ipynb``) counts if
there is none with the right name. So does a file outside its folder, if its name is unambiguous.
"""

import re

COPY = re.compile(
    r"(?P<stem>.+?)(?:-copy(\d*)|-(\d+)| ?\((\d+)\)| - copy(?: \((\d+)\))?| copy(?: (\d+))?)", re.IGNORECASE
)
AROUND = 3  # largest number of folders around a submission


class Recogniser:
    """A function that recognises the requested `names`, such as "notebooks/02_multi_gpu.ipynb"."""

    def __init__(self, names):
        self.exact = {name.casefold(): name for name in names}
        self.ends = {}  # the end of a name, from any folder on -> the name, or None if it is ambiguous
        for name in names:
            parts = name.casefold().split("/")
            for begin in range(1, len(parts)):
                end = "/".join(parts[begin:])
                self.ends[end] = None if end in self.ends else name

    def __call__(self, parts):
        """Return (the enclosing folders, the name, rank) for the path with these `parts`. The folders are None for a
        file outside its folder, and the name is "" for a path that is not requested. If two paths have the same name,
        the one with the lower rank counts; 0 is the name itself."""
        folded = [part.casefold() for part in parts]
        stem, number = _original(folded[-1])
        arounds = range(min(AROUND + 1, len(parts)))
        # the last of several copies counts
        for path, rank in ((folded, 0), ([*folded[:-1], stem], 2 - number / (number + 1))):
            for around in arounds:
                if name := self.exact.get("/".join(path[around:])):
                    return "/".join(parts[:around]), name, rank
            for around in arounds:
                if name := self.ends.get("/".join(path[around:])):
                    return None, name, rank + 3
        return None, "", 0


def _original(name):
    """Return (the name of the original, the copy's number) for a file's name in small letters; the name itself and 0 if
    it is not a copy."""
    stem, dot, suffix = name.rpartition(".")
    if dot and (copy := COPY.fullmatch(stem)):
        return f"{copy['stem']}.{suffix}", int(next((digits for digits in copy.groups()[1:] if digits), "0")[-9:])
    return name, 0
