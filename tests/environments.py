"""Virtual environments in which tests run notebooks, and much else that starts PyTorch only to see what comes of it."""

import json
import os
import shutil
import sys
import sysconfig
import tomllib
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# whatever Python finds this has the stand-in for PyTorch's compiler
QUICK_START = {"PYTHONPATH": str(ROOT / "tests/quick_start")}


def environment_of(course, folder):
    """A virtual environment in `folder` that has what this one has, but the packages and commands of the course or
    bundle at `course`, and a stand-in for PyTorch's compiler (no_compiler.py). Returns the folder of its programs."""
    ours = Path(sys.prefix)
    packages = Path(sysconfig.get_path("purelib")).relative_to(ours)
    (folder / packages).mkdir(parents=True)
    (folder / "bin").mkdir()
    for path in [
        *ours.iterdir(),
        *(ours / "bin").iterdir(),
        *(ours / packages.parent.parent).iterdir(),
        *(ours / packages).iterdir(),
    ]:
        place = folder / path.relative_to(ours)
        if not place.exists() and not path.name.startswith("__editable__"):
            # the grader's box has the real Python, and not the environment that this one is made from
            place.symlink_to(path.resolve() if path.parent.name == "bin" and path.name.startswith("python") else path)
    (folder / packages / "course.pth").write_text(f"{course}\nimport no_compiler\n")
    shutil.copy(Path(__file__).with_name("no_compiler.py"), folder / packages)
    scripts = tomllib.loads((course / "pyproject.toml").read_text())["project"]["scripts"]
    for name, entry in (scripts | {"torchrun": "torch.distributed.run:main"}).items():
        module, function = entry.split(":")
        (folder / "bin" / name).unlink()
        (folder / "bin" / name).write_text(
            f"#!{folder}/bin/python\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        (folder / "bin" / name).chmod(0o755)
    return folder / "bin"


@contextmanager
def entered(folder, course=ROOT):
    """Within it, commands and notebooks' kernels are those of an environment in `folder`, with the packages and
    commands of this course, or of a bundle."""
    programs = environment_of(course, folder / "venv")
    place = folder / "kernels/python3"
    place.mkdir(parents=True)
    command = [str(programs / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (place / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "Python 3", "language": "python"}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("JUPYTER_PATH", str(folder))
        yield
