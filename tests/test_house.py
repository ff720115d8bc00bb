"""The house: the environment that `make` keeps, the sentences it says when it can't, and that README and pins are true.

Most tests run the real Makefile and setup_environment.sh in a copy of the folder, with Pythons that are shell scripts:
they say what a test wants them to say, and their pip notes that it was called.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml
from waiting import run_to_end, wait_until

ROOT = Path(__file__).resolve().parent.parent
INPUTS = ["requirements.txt", "build-constraints.txt", "pyproject.toml"]

# $STUBS/venv and $STUBS/pip are what those do besides, when a test says so; $STUBS/calls is what was called.
PYTHON = r"""#!/usr/bin/env bash
case "$*" in
    *can_make*) printf '%s\t%s\t%s\n' "{version}" "{can_make}" "$0" ;;
    *'version("torch")'*) echo 2.11.0 ;;
    "-c import torch") exit {torch_status} ;;
    "-m venv "*)
        echo venv >>"$STUBS/calls"
        folder="${@: -1}"
        mkdir -p "$folder/bin" && cp "$0" "$folder/bin/python"
        case "$*" in *--system-site-packages*) echo "include-system-site-packages = true" >"$folder/pyvenv.cfg" ;; esac
        [ ! -e "$STUBS/venv" ] || . "$STUBS/venv" ;;
    "-m pip install "*) echo pip >>"$STUBS/calls"; [ ! -e "$STUBS/pip" ] || . "$STUBS/pip" ;;
    "-m pytest"*) echo "pytest ran" ;;
    --version) echo "Python {version}" ;;
esac
"""
NO_INDEX = 'echo "WARNING: Retrying after NewConnectionError(...): Failed to establish a new connection"; exit 1'


class House:
    """A copy of what `make` needs, and the programs that stand in for the machine's own."""

    def __init__(self, folder):
        self.folder, self.stubs = folder / "the course", folder / "stubs"
        self.folder.mkdir()
        self.stubs.mkdir()
        for name in ["Makefile", "setup_environment.sh", *INPUTS]:
            shutil.copy(ROOT / name, self.folder)
        self.pythons("3.11")

    def stub(self, name, text):
        (self.stubs / name).write_text(text)
        (self.stubs / name).chmod(0o755)

    def pythons(self, version, can_make="yes", torch_status=0):
        for name in ("python3", "python3.11", "python3.12", "python3.13"):
            fields = {"version": version, "can_make": can_make, "torch_status": str(torch_status)}
            self.stub(name, re.sub(r"\{(version|can_make|torch_status)\}", lambda match: fields[match[1]], PYTHON))

    def pip(self, script):
        (self.stubs / "pip").write_text(script)

    def cut_off(self, step, *words):
        """Start a `make` and kill all of it in the midst of `step`, venv or pip."""
        (self.stubs / step).write_text('echo half >.venv/half; touch "$STUBS/reached"; sleep 60')
        process = self.start(*words)
        wait_until((self.stubs / "reached").exists, "the stub is reached")
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=120)
        (self.stubs / step).unlink()

    def calls(self):
        calls = self.stubs / "calls"
        return calls.read_text().split() if calls.exists() else []

    def start(self, *words, **variables):
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        environment = kept | {"PATH": f"{self.stubs}:{os.environ['PATH']}", "STUBS": str(self.stubs)} | variables
        return subprocess.Popen(
            ["make", *words],
            cwd=self.folder,
            env=environment,
            text=True,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def make(self, *words, **variables):
        """The exit status of a `make`, and what it printed; the sentence alone where there is one."""
        process = self.start(*words, **variables)
        out, errors = process.communicate(timeout=500)
        sentences = re.findall(r"^setup_environment\.sh: (.*)$", errors, re.MULTILINE)
        return process.returncode, sentences[0] if sentences else out + errors


@pytest.fixture
def house(tmp_path):
    return House(tmp_path)


def test_the_environment_is_made_once(house):
    status, output = house.make("test")
    assert (status, house.calls()) == (0, ["venv", "pip"])
    assert "1.5 GB" in output and "pytest ran" in output
    status, output = house.make("test")
    assert (status, output, house.calls()) == (0, "pytest ran\n", ["venv", "pip"])


@pytest.mark.parametrize("name", INPUTS)
def test_changed_requirements_bring_the_environment_up_to_date(house, name):
    house.make("environment")
    with open(house.folder / name, "a") as file:
        file.write("# changed\n")
    assert house.make("environment")[0] == 0
    assert house.calls() == ["venv", "pip", "pip"]


def test_an_environment_made_by_hand_is_kept(house):
    subprocess.run(
        [house.stubs / "python3", "-m", "venv", house.folder / ".venv"],
        env={"STUBS": str(house.stubs), "PATH": os.environ["PATH"]},
    )
    assert house.make("environment")[0] == 0
    assert house.calls() == ["venv", "pip"]


def test_an_environment_whose_python_is_gone_is_made_anew(house):
    house.make("environment")
    (house.folder / ".venv/bin/python").unlink()
    assert house.make("test")[0] == 0
    assert house.calls() == ["venv", "pip"] * 2


def test_another_python_makes_another_environment(house):
    house.make("environment")
    house.pythons("3.12")
    house.make("environment", "PYTHON=python3.12")
    house.make("environment", "PYTHON=python3.12")
    house.make("environment")
    assert house.calls() == ["venv", "pip"] * 2


@pytest.mark.parametrize("step", ["venv", "pip"])
def test_an_installation_cut_off_is_made_again_from_nothing(house, step):
    house.make("environment")
    house.pythons("3.12")
    house.cut_off(step, "environment", "PYTHON=python3.12")
    done = house.calls()
    assert house.make("test")[0] == 0
    assert house.calls() == [*done, "venv", "pip"]
    assert not (house.folder / ".venv/half").exists()


def test_an_interrupted_installation_says_what_to_do(house):
    house.pip('touch "$STUBS/installing"; sleep 60')
    process = house.start("environment")
    wait_until((house.stubs / "installing").exists, "it is installing")
    os.killpg(process.pid, signal.SIGTERM)
    assert "interrupted; run make again" in process.communicate(timeout=120)[1]


def test_two_makes_at_once_install_once(house):
    house.pip('touch "$STUBS/installing"; until [ -e "$STUBS/go" ]; do sleep 0.05; done')
    first = house.start("test")
    wait_until((house.stubs / "installing").exists, "it is installing")
    second = house.start("test")
    assert "Another make is installing" in second.stderr.readline()
    (house.stubs / "go").touch()
    assert "pytest ran" in first.communicate(timeout=120)[0] and "pytest ran" in second.communicate(timeout=120)[0]
    assert house.calls() == ["venv", "pip"]


def test_too_old_a_python_is_named_and_how_to_get_another(house):
    house.pythons("3.9")
    status, sentence = house.make("tour")
    assert status == 2
    assert "python3 is 3.9" in sentence
    assert "package manager, pyenv, conda or uv" in sentence
    assert "make PYTHON=" in sentence
    assert not house.calls()


def test_a_fitting_python_is_found_behind_one_that_does_not_fit(house):
    house.stub("python3", (house.stubs / "python3").read_text().replace("3.11", "3.9"))
    assert house.make("environment")[0] == 0
    assert "3.11" in (house.folder / ".venv/bin/python").read_text()


@pytest.mark.thorough
def test_an_unreachable_index_is_named(house):
    """With the real Python and pip, asking a port of this machine where nobody listens."""
    variables = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_RETRIES": "1",
        "no_proxy": "*",
    }
    status, sentence = house.make("test", PYTHON=sys._base_executable, **variables)
    assert status == 2 and "pip cannot reach its package index" in sentence and "https_proxy" in sentence


def test_a_failed_update_leaves_the_environment_as_it_was(house):
    house.make("environment")
    requirements = (house.folder / "requirements.txt").read_text()
    (house.folder / "requirements.txt").write_text(requirements + "new==1.0\n")
    house.pip(NO_INDEX)
    assert "cannot reach" in house.make("test")[1]
    (house.folder / "requirements.txt").write_text(requirements)
    assert house.make("test") == (0, "pytest ran\n")


def test_a_disk_too_full_is_named_before_anything_is_installed(house):
    house.stub("df", "#!/bin/sh\necho Avail\necho 102400\n")
    status, sentence = house.make("test")
    assert status == 2 and "has 100 MB free and about 2048 MB are needed" in sentence
    assert not house.calls()


def test_the_torch_of_an_image_is_used(house):
    assert house.make("environment", "SYSTEM_TORCH=1")[0] == 0
    assert "torch==2.11.0\n" in (house.folder / ".venv/requirements.txt").read_text()
    assert "/python" in (house.folder / ".venv/bin/torchrun").read_text()  # the image's starts the image's Python
    house.make("environment")
    assert house.calls() == ["venv", "pip"]


def test_the_torch_of_an_image_can_be_chosen_and_given_up_later(house):
    house.make("environment")
    house.make("environment", "SYSTEM_TORCH=1")
    assert (house.folder / ".venv/requirements.txt").exists()
    house.make("environment", "SYSTEM_TORCH=0")
    assert not (house.folder / ".venv/requirements.txt").exists()
    assert house.calls() == ["venv", "pip"] * 3


def test_requirements_are_exact_and_nowhere_else():
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==\d[\d.]*", line)] == []
    pinned = {line.split("==")[0] for line in lines}
    assert len(pinned) == len(lines)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "dependencies" not in project and "optional-dependencies" not in project
    assert (ROOT / "build-constraints.txt").read_text() == "setuptools<81\n"


def test_conda_gets_the_same_pins():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    requires_python = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert environment["dependencies"] == [f"python {requires_python}", "pip", {"pip": ["-r requirements.txt", "-e ."]}]
    frameworks = yaml.safe_load((ROOT / "environment-frameworks.yml").read_text())
    assert frameworks["dependencies"] == [
        f"python {requires_python}",
        "pip",
        {"pip": ["-r requirements.txt", "-r frameworks.txt", "-e ."]},
    ]
    pins = [line for line in (ROOT / "frameworks.txt").read_text().splitlines() if not line.startswith("#")]
    assert pins and [line for line in pins if not re.fullmatch(r"[a-z0-9-]+==\d[\d.]*", line)] == []


def tracked_files():
    listed = run_to_end(["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_knows_the_machine_it_was_written_on():
    folders = [
        f"{folder}/".encode()
        for folder in (ROOT, Path.home(), sys.prefix, sys.base_prefix)
        if str(folder) not in ("/", "/usr")
    ]
    assert [path for path in tracked_files() if any(folder in path.read_bytes() for folder in folders)] == []


def readme():
    return (ROOT / "README.md").read_text()


def test_the_page_for_developers_names_the_targets_of_make():
    page = (ROOT / "docs/developing.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())
    assert targets == set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"^\| `make ([a-z-]+)` \|", page, re.MULTILINE)) == targets - {"help"}
    assert set(re.findall(r"^    make ([a-z-]+)", readme(), re.MULTILINE)) <= targets


def test_readme_names_commands_that_exist():
    named = set(re.findall(r"python -m handson (\w+)", readme() + (ROOT / "Makefile").read_text()))
    shown = run_to_end([sys.executable, "-m", "handson", "--help"], cwd=ROOT).stdout
    assert named <= set(re.findall(r"\w+", shown))


def test_readme_describes_every_folder():
    described = set(re.findall(r"`(\w+)/`", readme().partition("## Repository layout")[2].partition("## ")[0]))
    folders = {path.relative_to(ROOT).parts[0] for path in tracked_files() if path.parent != ROOT}
    assert {folder for folder in folders if not folder.startswith(".")} <= described
    assert all((ROOT / folder).is_dir() for folder in described)


def test_readme_names_files_that_exist():
    names = re.findall(r"`([\w./-]+\.(?:md|txt|toml|yml|npz))`", readme()) + re.findall(
        r"(solutions/\S+\.py)", readme()
    )
    missing = [name for name in names if not list(ROOT.glob(name)) + list(ROOT.glob(f"jobs/sites/{name}"))]
    assert names and missing == []


def test_pyproject_names_functions_that_exist():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    installed = {script.name: script for script in entry_points(group="console_scripts") if script.name in scripts}
    assert {name: script.value for name, script in installed.items()} == scripts
    assert all(callable(script.load()) for script in installed.values())


def test_the_package_imports_without_a_warning_and_without_torch(tmp_path):
    code = "import sys, handson, handson.cluster.nodes; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, check=True)


@pytest.mark.parametrize("name", [".ci/run", "setup_environment.sh", "setup_frameworks.sh"])
def test_scripts_are_executable_and_valid(name):
    assert os.access(ROOT / name, os.X_OK)
    subprocess.run(["bash", "-n", ROOT / name], check=True)


def run_ci(house, make):
    """.ci/run where only bash is installed: its exit status, and the calls of apt-get and make."""
    ci = house.folder / ".ci/run"
    ci.parent.mkdir(exist_ok=True)
    shutil.copy(ROOT / ".ci/run", ci)
    house.stub("dpkg-query", '#!/bin/sh\n[ "$4" = bash ] && printf installed\n')
    house.stub("apt-get", '#!/bin/sh\necho "apt-get $*" >>"$STUBS/calls"\n')
    house.stub("make", f'#!/bin/sh\necho "make $*" >>"$STUBS/calls"\n{make}\n')
    environment = os.environ | {"PATH": f"{house.stubs}:{os.environ['PATH']}", "STUBS": str(house.stubs)}
    status = subprocess.run([ci], env=environment, stdout=subprocess.DEVNULL, timeout=120).returncode
    return status, (house.stubs / "calls").read_text().splitlines()


def test_ci_installs_what_is_missing_and_runs_the_tests_last(house):
    status, calls = run_ci(house, "exit 0")
    assert status == 0
    assert calls[0].startswith("apt-get update") and " procps " in calls[1] and " bash " not in calls[1]
    assert calls[2:6] == ["make environment", "make lint", "make book", "make book LANGUAGE=ja"]
    assert calls[6].startswith("make tour") and calls[7:9] == ["make test", "make frameworks"]
    assert calls[9].startswith("make test-frameworks")


@pytest.mark.parametrize("target", ["environment", "lint", "book", "tour", "test", "frameworks", "test-frameworks"])
def test_ci_fails_when_a_step_fails(house, target):
    assert run_ci(house, f'[ "$1" != {target} ]')[0] != 0


def test_no_two_test_files_have_the_same_name():
    """pytest then refuses to run any test, but only if it collects both."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)
