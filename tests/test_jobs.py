"""The job scripts: one file for a real PBS Professional, for Slurm's wrappers and for the embedded PBS."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from waiting import run_to_end

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted((ROOT / "solutions").glob("*/*.sh"))
# What the lecture's machine gives each task: nodes x processes, a GPU and a thread for each.
SELECT = {
    "single_gpu": "1:ngpus=1:mpiprocs=1:ompthreads=1",
    "multi_gpu": "1:ngpus=2:mpiprocs=2:ompthreads=1",
    "multi_node": "2:ngpus=2:mpiprocs=2:ompthreads=1",
}


@pytest.fixture(params=SCRIPTS, ids=lambda path: path.name)
def script(request):
    return request.param


@pytest.fixture(params=[path for path in SCRIPTS if path.name.endswith("_training.sh")], ids=lambda path: path.name)
def training(request):
    return request.param


@pytest.fixture(params=SELECT)
def of_lecture(request):
    [path] = [path for path in SCRIPTS if path.name == f"run_{request.param}_training.sh"]
    return path


def task_of(script):
    return re.fullmatch(r"run_(\w+)_training\.sh", script.name)[1]


def directives(script):
    return re.findall(r"^#PBS +(.*)$", script.read_text(), re.MULTILINE)


def resources(script):
    return [line.split(None, 1)[1] for line in directives(script) if line.startswith("-l")]


def test_each_script_lies_in_the_folder_of_its_unit_as_a_file(training):
    assert training.parent.name[3:] == task_of(training)
    assert not training.is_symlink()


def test_it_is_a_bash_script_that_can_be_executed(script):
    assert script.read_text().startswith("#!/bin/bash\n")
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", script]).returncode == 0


def test_every_directive_stands_before_the_first_command(script):
    """PBS ignores the others."""
    lines = [line for line in script.read_text().splitlines() if line.strip()]
    first_command = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    assert not [line for line in lines[first_command:] if line.startswith("#PBS")]


def test_its_directives_are_those_of_the_lecture(training):
    options = {line.split()[0] for line in directives(training)}
    assert options == {"-q", "-l", "-W", "-N"}
    assert {f"-N {task_of(training)}", "-q lecture", "-W group_list=gt00"} <= set(directives(training))


def test_it_asks_for_the_nodes_and_processes_of_its_task(of_lecture):
    assert f"select={SELECT[task_of(of_lecture)]}" in resources(of_lecture)


def test_it_has_a_time_limit(script):
    assert any(re.fullmatch(r"walltime=\d\d:\d\d:\d\d", resource) for resource in resources(script))


def test_resources_are_one_to_a_line_and_without_chunks_added_up(script):
    """Slurm's wrapper reads no others."""
    assert not [resource for resource in resources(script) if "," in resource or "+" in resource]


def test_two_nodes_are_two_hosts(script):
    """Without place=scatter a real PBS may put both chunks on one."""
    [nodes] = [int(found[1]) for resource in resources(script) if (found := re.match(r"select=(\d+)", resource))]
    assert ("place=scatter" in resources(script)) == (nodes > 1)


def test_it_works_where_it_was_submitted_with_the_path_of_then(script):
    """A job begins in the home directory, with a bare PATH."""
    commands = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert commands[0] == 'cd "${PBS_O_WORKDIR:-.}"'
    if "python" in script.read_text():
        assert commands[1] == 'export PATH="${PBS_O_PATH:-$PATH}"'


def test_it_starts_what_the_variables_track_and_options_say(of_lecture, tmp_path):
    """With programs on PATH that say how they were called."""
    for name in ("python", "mpiexec"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "handson-launcher").write_text("#!/bin/sh\necho export LAUNCHED=yes\n")
    (tmp_path / "handson-launcher").chmod(0o755)
    nodes = tmp_path / "the node file"
    nodes.write_text("n0\nn0\nn1\nn1\nn2\n")
    environment = {
        "PATH": "/bin",
        "PBS_O_PATH": f"{tmp_path}:/usr/bin:/bin",
        "PBS_O_WORKDIR": str(tmp_path),
        "PBS_NODEFILE": str(nodes),
    }

    def run(**variables):
        done = run_to_end(["/bin/bash", of_lecture], cwd="/", env=environment | variables, check=True)
        return done.stdout.strip()

    program = f"train_cifar_{task_of(of_lecture)}.py"
    start = {
        "single_gpu": "python {}",
        "multi_gpu": "python {}",
        "multi_node": f"mpiexec -n 5 -hostfile {nodes} python {{}}",
    }
    command = start[task_of(of_lecture)]
    assert run() == command.format(f"pytorch/{program}")
    assert run(TRACK="chainer", OPTIONS="-e 1 --size 32") == command.format(f"chainer/{program}") + " -e 1 --size 32"
