"""The job scripts that profile the tasks: as the scripts that train, and all that they leave is in one folder."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import made_profiles as made
import pytest
from waiting import run_to_end

from handson.profiling import readers
from handson.training import results

SCRIPTS = sorted((made.ROOT / "solutions").glob("*/run_*_profile.sh"))


def directives(path):
    return sorted(re.findall(r"^#PBS (-[ql W].*)$", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_profile_is_taken_with_the_resources_of_the_training(script):
    training = script.with_name(script.name.replace("_profile", "_training"))
    given = [line for line in directives(training) if "(" not in line]  # but for what students see
    assert directives(script) == given and os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", script]).returncode == 0
    task = script.name.removeprefix("run_").removesuffix("_profile.sh")
    assert not script.is_symlink() and script.parent.name.endswith(task)


def test_a_job_leaves_profile_and_result_in_one_folder(tmp_path):
    shutil.copytree(made.ROOT / "solutions/02_multi_gpu", tmp_path / "02_multi_gpu")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HANDSON_PBS_HOME": str(tmp_path / "pbs"),
    }
    variables = "TRACK=chainer,PROFILE=--skip 3 --steps 4,OPTIONS=--epoch 1 --size 16"
    command = ["qsub", "-W", "block=true", "-j", "oe", "-v", variables, "run_multi_gpu_profile.sh"]
    done = run_to_end(command, cwd=tmp_path / "02_multi_gpu", env=environment, timeout=500)
    [out] = (tmp_path / "02_multi_gpu").glob("multi_gpu_profile.o*")
    assert done.returncode == 0, done.stderr + out.read_text()
    assert "Recorded 4 steps" in out.read_text() and "Throughput: " in out.read_text()
    [folder] = (tmp_path / "02_multi_gpu/results").iterdir()
    assert re.fullmatch(r"multi_gpu_chainer_profile_\d+", folder.name)
    [run] = readers.load([folder])
    assert len(run.timelines) == 2
    assert run.result == results.read(folder)
    assert run.result.unit == "multi_gpu"
    assert run.result.profiled
