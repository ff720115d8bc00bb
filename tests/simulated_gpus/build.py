"""Compile simulated_gpus.cpp for the installed PyTorch into build/simulated_gpus: python build.py (a minute)."""

import subprocess
import sysconfig
from pathlib import Path

import torch
from torch.utils.cpp_extension import TORCH_LIB_PATH, include_paths

HERE = Path(__file__).resolve().parent
LIBRARY = HERE.parents[1] / "build/simulated_gpus/simulated_gpus.so"


def build():
    source = HERE / "simulated_gpus.cpp"
    stamp = LIBRARY.with_suffix(".torch")  # the version for which it is compiled
    newest = max(source.stat().st_mtime, Path(__file__).stat().st_mtime)
    if LIBRARY.exists() and LIBRARY.stat().st_mtime > newest and stamp.read_text() == torch.__version__:
        return
    LIBRARY.parent.mkdir(parents=True, exist_ok=True)
    folders = [*include_paths(), sysconfig.get_path("include")]
    words = "g++ -std=c++20 -O1 -shared -fPIC -w -DTORCH_EXTENSION_NAME=simulated_gpus -DTORCH_API_INCLUDE_EXTENSION_H"
    unfinished = LIBRARY.with_suffix(".part")
    files = [str(source), "-o", str(unfinished), f"-L{TORCH_LIB_PATH}", *"-lc10 -ltorch_cpu -ltorch_python".split()]
    subprocess.run([*words.split(), *(f"-isystem{folder}" for folder in folders), *files], check=True)
    stamp.write_text(torch.__version__)
    unfinished.replace(LIBRARY)


if __name__ == "__main__":
    build()
