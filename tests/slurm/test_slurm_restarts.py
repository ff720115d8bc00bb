"""A node of a Slurm job is killed: its torchrun starts again, and the training ends as one that nothing interrupted."""

import re
import shutil

import pytest
from environments import QUICK_START
from slurm_harness import ENVIRONMENT, ROOT

from handson.pytorch import checkpoints
from handson.training import map_files

pytestmark = pytest.mark.thorough
OPTIONS = "-e 2 -b 100 --every 2 -o results"


def test_a_killed_node_of_slurm_comes_back_and_costs_no_number(jobs, tmp_path):
    source, folder = ROOT / "solutions/05_communication", jobs.folder / "05_communication"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("results", "*.[oe][0-9]*", "__pycache__"))
    map_files.write("digits", tmp_path / "digits_files", say=lambda line: None)
    environment = ENVIRONMENT | QUICK_START | {"HANDSON_DATA": str(tmp_path)}
    for name, more in (("whole", {}), ("killed", {"KILL_NODE": "yes"})):
        variables = {"OPTIONS": f"{OPTIONS}/{name}", **more}
        command = ["qsub", "-j", "oe", "run_restarts.sh"]
        number = jobs.cluster.run(*command, folder=folder, env=environment | variables).strip()
        state, output = jobs.wait(number), (folder / f"run_restarts.sh.o{number}").read_text()
        assert state == "COMPLETED", output
    assert re.search(r"^node2 dies", output, re.MULTILINE) and re.search(r"\bin epoch \d+, after", output)
    assert set(checkpoints.differences(folder / "results/whole", folder / "results/killed").values()) == {0.0}
