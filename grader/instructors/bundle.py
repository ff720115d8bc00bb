"""Write everything that students receive into one archive: the built exercises and notebooks, and the code that runs
and checks them, without solutions."""

import os
import zipfile
from datetime import date
from pathlib import Path

from grader import exercises
from grader.course import UNITS
from grader.instructors.notebook_answers import recorded
from handson.catalogue import MESSAGES
from handson.cluster import job_scripts
from handson.cluster import site as sites
from handson.errors import OneSentence
from handson.files import add_to_zip, written_aside
from handson.language import CHOSEN, ENGLISH

TOP = "handson-course"  # the archive's only top folder
FOR_STUDENTS = "for_students"  # the folder with further content for students, mostly as links
LEFT_OUT = {"instructors", "__pycache__", "CHOSEN"}  # files and folders that students do not receive
# hidden files that students receive, so that a container image does not contain their .venv
HIDDEN = {".containerignore", ".dockerignore"}
FOR_TESTS = "# Students do without what follows"  # the line in requirements.txt


class BundleError(OneSentence):
    """The reason why there is no bundle."""


def refuse_unwritable(path):
    """Raise BundleError if no archive can be written at `path`; called before anything is built."""
    if path.suffix != ".zip":
        raise BundleError(f"the bundle {path} would be a zip archive: give it a name that ends in .zip")
    if not path.parent.is_dir():
        raise BundleError(f"the bundle {path} has no folder: create {path.parent}, or name another file")


def bundle(built, path, site=None, root=exercises.ROOT):
    """Write the archive at `path`: the files `built` for `site`, and the course's content for students at `root`.
    Raises BundleError."""
    name = site or sites.chosen()
    here, files = sites.read(name), {}
    for path_inside, source in _for_students(root / FOR_STUDENTS):
        files[path_inside] = source.read_bytes(), source.stat().st_mode & 0o777
    files |= _of_languages(built.language, root)
    for file in [file for file in files if file.suffix == ".sh" and file.parts[0] == "jobs"]:
        files[file] = job_scripts.fitted(files[file][0].decode(), here).encode(), files[file][1]
    needed = (root / "requirements.txt").read_text().partition(FOR_TESTS)[0]
    if built.language != ENGLISH:
        needed += (root / "locale" / built.language / "requirements.txt").read_text()  # a font for figures
    files[Path("requirements.txt")] = needed.encode(), 0o644
    files |= {file: (text.encode(), mode) for file, (text, mode) in built.files.items()}
    files[Path("grader/exercises.json")] = exercises.recorded(built.exercises).encode(), 0o644
    for unit in UNITS:
        files[Path("grader/units", unit, "recorded.json")] = recorded(unit).encode(), 0o644
    files[Path("jobs/sites/CHOSEN")] = f"{name}\n".encode(), 0o644
    try:
        with written_aside(path) as archive, zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as pack:
            today = date.today().timetuple()[:3]
            for file in sorted(files):
                add_to_zip(pack, f"{TOP}/{file}", *files[file], day=today)
    except OSError as error:
        raise BundleError(f"the bundle {path} cannot be written ({error.strerror}): name another file") from None


def _for_students(folder):
    """Yield (path in the bundle, file) for each file for students in `folder`; links are followed."""
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if _is_for_students(name))
        for name in sorted(filter(_is_for_students, names)):
            yield Path(place, name).relative_to(folder), Path(place, name)


def _of_languages(language, root):
    """Return the catalogues of messages for all languages; in another language than English, the pages too."""
    files = {}
    for folder in (root / "locale").glob("*/"):
        names = [*folder.glob("*.t[ox]*"), *(one for form in MESSAGES for one in (folder / "LC_MESSAGES").glob(form))]
        files |= {path.relative_to(root): (path.read_bytes(), 0o644) for path in sorted(names)}
    if language != ENGLISH:
        from grader.instructors.translation.pages import translated_pages

        files |= {path: (text.encode(), 0o644) for path, text in translated_pages(language, root / FOR_STUDENTS)}
        files[Path("locale", CHOSEN)] = f"{language}\n".encode(), 0o644
    return files


def _is_for_students(name):
    return name in HIDDEN or name not in LEFT_OUT and not name.startswith(".")
