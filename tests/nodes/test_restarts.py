"""A node of a job is killed: torchrun starts the ranks again, and the training ends as one that nothing interrupted."""

import shutil
from pathlib import Path

import pytest
from node_jobs import Jobs

from handson.cluster import virtual_nodes
from handson.notebook import restarts
from handson.training import map_files

SCRIPTS = Path(__file__).resolve().parents[2] / "solutions/05_communication"
OPTIONS = "OPTIONS=-e 2 -b 100 --every 2 -o"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(virtual_nodes.why_not() is not None, reason=f"{virtual_nodes.why_not()}")]


def test_a_killed_node_costs_no_number(tmp_path):
    jobs = Jobs(tmp_path)
    try:
        shutil.copytree(SCRIPTS, jobs.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("results", "*.o[0-9]*"))
        map_files.write("digits", tmp_path / "data/digits_files", say=lambda line: None)
        numbers = {}
        for name in ("whole", "killed"):
            done = jobs("qsub", "-j", "oe", "-v", f"{OPTIONS} results/{name},HANDSON_DATA={tmp_path / 'data'}", "run_restarts.sh")
            numbers[name] = done.stdout.split(".")[0]
        restarts.kill_node(numbers["killed"], "node2", jobs.folder / "results/killed/checkpoint.pt", limit=100, say=lambda line: None)
        for name, number in numbers.items():
            output = Path(jobs.folder, f"restarts.o{number}")
            assert jobs.finish(number)["Exit_status"] == "0", output.read_text()[-3000:]
        assert "Going on in epoch" in output.read_text()
        assert set(restarts.differences(jobs.folder / "results/whole", jobs.folder / "results/killed").values()) == {0.0}
    finally:
        jobs.close()
