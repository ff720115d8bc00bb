"""The fixtures `course` (a bundle, unpacked), `lab` (JupyterLab there) and `page` (a tab of Chromium)."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from lab import CHROMIUM, server
from playwright.sync_api import sync_playwright

from grader.course import UNITS
from grader.instructors.bundle import TOP, bundle
from grader.instructors.release import build
from grader.instructors.known_answers import solved

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def course(tmp_path_factory):
    """What a student has who filled all scripts of the PyTorch track."""
    folder = tmp_path_factory.mktemp("course")
    bundle(build(ROOT / "solutions", "local"), folder / "course.zip", "local")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", folder / "course.zip", folder], check=True)
    for part in (part for parts in UNITS.values() for part in parts):
        if part.file.startswith("exercises/") and part.track in ("pytorch", ""):
            (folder / TOP / part.file).write_text(solved(part.file))
    return folder / TOP


@pytest.fixture(scope="session")
def lab(course, tmp_path_factory):
    with server(course, tmp_path_factory.mktemp("lab")) as address:
        yield address


@pytest.fixture(scope="session")
def browser():
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("there is no Chromium: install the package chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    yield page
    page.close()


@pytest.fixture(scope="session")
def pictures():
    """Where screenshots are kept."""
    return Path(tempfile.gettempdir()) / "handson-screenshots"
