"""Every notebook, with its gaps filled, where jobs run on a PBS as it is released (see the key `strict` of a site)."""

import shutil

import environments
import pytest
from node_jobs import SITE
from released import shared_folder
from smaller import few_images

from handson.cluster import virtual_nodes
from notebooks import ROOT, run_in_kernel

NOTEBOOKS = [path.stem for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(virtual_nodes.why_not() is not None, reason=f"{virtual_nodes.why_not()}"),
]


@pytest.fixture(scope="module")
def released(course):
    """A copy of the course of a student, with an environment of its own, whose jobs run on such a PBS."""
    with shared_folder() as folder:
        yield from _released(course, folder)


def _released(course, folder):
    copy = folder / course.name
    shutil.copytree(course, copy, ignore=shutil.ignore_patterns("results"))
    shutil.copytree(course.parent / "mended", folder / "mended")
    (folder / "site.toml").write_text(SITE.format(nodes=2, gpus=2, strict="true", name="pbsn"))
    few_images(copy.parent / "data")
    with environments.entered(folder / "environment", copy), pytest.MonkeyPatch.context() as patch:
        patch.setenv("HANDSON_SITE", str(folder / "site.toml"))
        patch.setenv("HANDSON_PBS_HOME", str(folder / "pbs"))
        yield copy


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_to_its_end_on_a_pbs_as_it_is_released(name, released, monkeypatch):
    if name >= "05":  # the former ones record more steps than few images give
        monkeypatch.setenv("HANDSON_DATA", str(released.parent / "data"))
    ran = run_in_kernel(name, released)
    # the check of unit 07 alone needs the second environment
    errors = [error["evalue"] for error in ran.outputs("error") if "second environment" not in error["evalue"]]
    assert not errors
    if name[:2] in ("03", "05", "06", "08"):
        assert "PBS runs the jobs here on real nodes" in ran.printed
