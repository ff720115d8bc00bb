"""What students receive, as one archive: the built exercises and notebooks, what runs and checks them, and nothing that solves them."""

import zipfile
from pathlib import Path

from grader import exercises
from handson.cluster import site as sites
from handson.errors import OneSentence
from handson.files import written_aside
from handson.pbs import site as pbs_site

TOP = "handson-course"  # the archive's one folder
FOR_STUDENTS = Path(__file__).resolve().parent / "for_students"
WHOLE = (
    "LICENSE", "build-constraints.txt", "datasets/README.md", "datasets/datasets.toml", "datasets/digits.npz", "docs/launching.md",
    "environment.yml", "grader/__init__.py", "grader/box", "grader/checks", "grader/exercises.py", "grader/gaps.py", "grader/judging.py", "grader/notebook_cells.py", "grader/observing.py",
    "grader/probes", "grader/sandbox", "grader/self_check.py", "grader/display.py", "grader/units", "grader/verdict.py", "handson", "jobs/pbs/run_doctor.sh",
    "jobs/pbs/run_network.sh", "jobs/sites", "pyproject.toml", "setup_environment.sh",
)  # fmt: skip
ELSEWHERE = {"grader/__main__.py": "grader/check_command.py", "README.md": "grader/instructors/for_students/README.md", "Makefile": "grader/instructors/for_students/Makefile"}
FOR_TESTS = "# Students do without what follows"  # in requirements.txt
NOT_FOR_STUDENTS = {"handson/tour.py", "jobs/sites/CHOSEN"}
LEFT_OUT = {"__pycache__", "instructors"}  # folders
BEGINNING = (1980, 1, 1, 0, 0, 0)  # the time of every entry, so that the same course gives the same archive


class BundleError(OneSentence):
    """Why there is no bundle."""


def refuse_unwritable(path):
    """Raise BundleError where no archive can come, before anything is built."""
    if path.suffix != ".zip":
        raise BundleError(f"the bundle {path} would be a zip archive: give it a name that ends in .zip")
    if not path.parent.is_dir():
        raise BundleError(f"the bundle {path} has no folder to be in: make {path.parent}, or name another file")


def bundle(built, path, site=None, root=exercises.ROOT):
    """Write the archive at `path`, of what was `built` for `site`, and of the course at `root`. Raises BundleError."""
    name = site or pbs_site.chosen()
    here, files = sites.read(name), {}
    for file in _whole(root):
        files[file.relative_to(root)] = file.read_bytes(), file.stat().st_mode & 0o777
    for file, source in ELSEWHERE.items():
        files[Path(file)] = (root / source).read_bytes(), 0o644
    for file in [file for file in files if file.suffix == ".sh" and file.parts[0] == "jobs"]:
        files[file] = sites.fitted(files[file][0].decode(), here).encode(), files[file][1]
    files[Path("requirements.txt")] = (root / "requirements.txt").read_text().partition(FOR_TESTS)[0].encode(), 0o644
    files |= {file: (text.encode(), mode) for file, (text, mode) in built.files.items()}
    files[Path("grader/exercises.json")] = exercises.recorded(built.exercises).encode(), 0o644
    files[Path("jobs/sites/CHOSEN")] = f"{name}\n".encode(), 0o644
    try:
        with written_aside(path) as archive, zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as pack:
            for file in sorted(files):
                data, mode = files[file]
                entry = zipfile.ZipInfo(f"{TOP}/{file}", BEGINNING)
                entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, (0o100000 | mode) << 16
                pack.writestr(entry, data)
    except OSError as error:
        raise BundleError(f"the bundle {path} cannot be written ({error.strerror}): name another file") from None


def _whole(root):
    for name in WHOLE:
        for file in sorted((root / name).rglob("*")) if (root / name).is_dir() else [root / name]:
            parts = file.relative_to(root).parts
            if file.is_file() and not LEFT_OUT & set(parts) and not parts[-1].startswith(".") and "/".join(parts) not in NOT_FOR_STUDENTS:
                yield file
