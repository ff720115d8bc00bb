"""A PBS as it is released, and the course's job scripts in it: nodes have other names and share no temporary folder,
there are no resources of ours, and qsub -V sends nothing (see the key `strict` of a site)."""

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from environments import ROOT, environment_of
from node_jobs import Jobs
from smaller import few_images

from handson.cluster import virtual_nodes
from handson.training import map_files

MARKS = [  # of the tests that run jobs there
    pytest.mark.thorough,
    pytest.mark.timeout(600),
    pytest.mark.skipif(virtual_nodes.why_not() is not None, reason=f"{virtual_nodes.why_not()}"),
]


@contextmanager
def shared_folder():
    """A folder that the nodes of such a PBS share: not in /tmp, of which each has one of its own."""
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build", prefix="release-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def released():
    """Jobs of such a PBS, whose trainings have few images."""
    with shared_folder() as folder:
        jobs = _jobs(folder)
        try:
            yield jobs
        finally:
            jobs.close()


def _jobs(folder):
    jobs = Jobs(folder, path=[environment_of(ROOT, folder / "venv")], release=True)
    few_images(folder / "data")
    map_files.write("digits", folder / "data/digits_files", say=lambda line: None)
    jobs.environment["HANDSON_DATA"] = str(folder / "data")
    return jobs


def run(jobs, unit, script, variables, select=None):
    """Submit a job script in a copy of its folder, with the variables' names alone, and maybe other resources than its
    own. Returns the output of the job, which ends well."""
    source = ROOT / (unit if unit.startswith("jobs") else f"solutions/{unit}")
    jobs.folder = jobs.state.parent / source.name
    leave_out = shutil.ignore_patterns("results", "*.[oe][0-9]*", "__pycache__")
    shutil.copytree(source, jobs.folder, dirs_exist_ok=True, ignore=leave_out)
    arguments = ["-v", ",".join([*variables, "HANDSON_DATA"]), "-j", "oe", "-N", "job"]
    arguments += ["-l", select, "-l", "place=scatter"] if select else []
    done = jobs("qsub", *arguments, script, **variables)
    assert done.returncode == 0, done.stderr
    number = done.stdout.split(".")[0]
    ended = jobs.finish(number)
    output = Path(jobs.folder, f"job.o{number}").read_text()
    assert ended["Exit_status"] == "0" and "Traceback" not in output, output
    return output
