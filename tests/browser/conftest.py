"""The fixtures `course` (a bundle, unpacked), `lab` (JupyterLab there), `page` (a tab of Chromium for it) and `ran`
(each notebook, run to its end)."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from lab import CHROMIUM, SIZE, server
from playwright.sync_api import sync_playwright

from grader.course import UNITS
from grader.exercises import solved
from grader.instructors.bundle import TOP, bundle
from grader.instructors.release import build
from notebooks import ROOT, run_in_kernel, run_in_lab, source_of

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NO_BROWSER = "there is no Chromium: install the package chromium"
NOTEBOOKS = [path.stem for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
BOTH_TRACKS = ("exercises/02_multi_gpu/", "exercises/03_multi_node/")  # of the notebook that runs in the Chainer track


@pytest.fixture(scope="session")
def course(tmp_path_factory):
    """The course of a student who has filled the scripts of the PyTorch track, and some of the other, but has not fixed
    those that notebooks profile "before"."""
    folder = tmp_path_factory.mktemp("course")
    bundle(build(ROOT / "solutions", "local"), folder / "course.zip", "local")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", folder / "course.zip", folder], check=True)
    to_mend = [name for notebook in NOTEBOOKS for name in re.findall(r'"(\w+\.py)", "before"', source_of(notebook))]
    (folder / "mended").mkdir()
    for part in (part for parts in UNITS.values() for part in parts):
        name = part.file.rsplit("/", 1)[1]
        if name in to_mend:
            (folder / "mended" / name).write_text(solved(part.file))
        elif part.file.startswith("exercises/") and (
            part.track in ("pytorch", "") or part.file.startswith(BOTH_TRACKS)
        ):
            (folder / TOP / part.file).write_text(solved(part.file))
    return folder / TOP


@pytest.fixture(scope="session")
def lab(course, tmp_path_factory):
    with server(course, tmp_path_factory.mktemp("lab")) as address:
        yield address


@pytest.fixture(scope="session")
def browser():
    if PROGRAM is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(NO_BROWSER)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def page(browser):
    page = browser.new_page(viewport=SIZE)
    yield page
    page.close()


# the remaining ones take minutes: they are run by hand
@pytest.fixture(
    scope="module",
    params=[
        name if name == "00_start" else pytest.param(name, marks=pytest.mark.thorough)
        for name in NOTEBOOKS
        if name < "06"
    ],
)
def ran(request, course, tmp_path_factory):
    """A notebook whose gaps are filled after it has run: in the browser, or, where there is none and CI asks for none,
    in a kernel."""
    if PROGRAM is None and os.environ.get("CI") != "true":
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HANDSON_PBS_HOME", str(tmp_path_factory.mktemp("pbs")))
            return run_in_kernel(request.param, course)
    return run_in_lab(request.param, course, *map(request.getfixturevalue, ("page", "lab", "pictures")))


@pytest.fixture(scope="session")
def pictures(request):
    """The folder for pictures of the pages, or None."""
    return request.config.getoption("--pictures")
