"""``python -m handson profile -- COMMAND``: choose a tool, print the reason, and replace this process with the command
under it.

nvprof records GPUs up to compute capability 7.x, Nsight Systems newer ones. The recorders of the two tracks
(torch.profiler; Chainer's hooks and MPI times) need no GPU.
"""

import os
import shutil
import sys
import time
from pathlib import Path

from handson.errors import OneSentence
from handson.language import speak
from handson.profiling import profile_job_resources
from handson.profiling.recording import VARIABLE, Plan
from handson.training.launch import launcher_rank

FIRST_WITHOUT_NVPROF = (8, 0)  # compute capability; CUDA 13 no longer has nvprof
RECORDERS = {"nvprof": "nvprof", "nsys": "nsys", "torch": "torch (PyTorch's profiler or Chainer's hooks)"}
OVERHEAD = {
    "torch": "only the recorded steps take some percent longer",
    "nvprof": "launching a kernel takes some microseconds longer, in all steps; nvprof is loaded into all processes",
    "nsys": "launching a kernel takes some microseconds longer in the recorded steps",
}


class RecordError(OneSentence, ValueError):
    """The reason why a command cannot be recorded."""


def record(command, tool, folder, skip, steps, say=speak):
    """Replace this process with `command` (a list of words), recorded by `tool` into `folder`. "auto": choose the tool.
    Raises RecordError."""
    if not command:
        raise RecordError(
            "there is no command to record: write it after --, as in python -m handson profile -- python train.py"
        )
    if not shutil.which(command[0]):
        raise RecordError(f"there is no command {command[0]}: check the words after --")
    if problem := profile_job_resources.lacking(Path.cwd(), os.environ):
        if launcher_rank() > 0:
            sys.exit(RecordError.status)  # rank 0 prints the reason
        raise RecordError(problem)
    tool, why = choose(tool, capability())
    folder = (folder or default_folder()).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(
            f"{folder} cannot be used as a folder for profiles ({error.strerror}): give another with -o"
        ) from None
    if launcher_rank() == 0:
        say(
            f"Recording with {RECORDERS[tool]}, {why}: steps {skip + 1} to {skip + steps}, into {folder};"
            f" {OVERHEAD[tool]}."
        )
        sys.stdout.flush()
    # this level keeps PyTorch's profiler from writing to standard error
    environment = os.environ | {VARIABLE: str(Plan(tool, skip, steps, folder)), "KINETO_LOG_LEVEL": "99"}
    words = under(tool, folder) + command
    os.execvpe(words[0], words, environment)


def choose(tool, gpu):
    """Return (nvprof, nsys or torch, the reason for the choice). gpu: the GPU's compute capability, such as (7, 5), or
    None without a GPU. Raises RecordError."""
    nvprof, nsys = shutil.which("nvprof"), shutil.which("nsys")
    if tool != "auto":
        if tool != "torch" and not shutil.which(tool):
            raise RecordError(f"{tool} is not on PATH: load the CUDA toolkit's module, or choose --tool torch")
        if tool == "nvprof" and gpu and gpu >= FIRST_WITHOUT_NVPROF:
            raise RecordError(
                f"nvprof does not record GPUs of compute capability {gpu[0]}.{gpu[1]}: choose --tool nsys or torch"
            )
        return tool, "as was asked for"
    if gpu is None:
        return "torch", "which needs no GPU, and there is none here"
    words = f"as the GPU has compute capability {gpu[0]}.{gpu[1]}"
    if nvprof and gpu < FIRST_WITHOUT_NVPROF:
        return "nvprof", words
    if nsys:
        return "nsys", words + (
            ", and nvprof records those below 8.0 only" if nvprof else ", and nvprof is not on PATH"
        )
    return "torch", f"{words}, and nsys is not on PATH"


def capability():
    """Return the compute capability of the first GPU, such as (7, 5), or None if no GPU can be used."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        return tuple(pynvml.nvmlDeviceGetCudaComputeCapability(pynvml.nvmlDeviceGetHandleByIndex(0)))
    except pynvml.NVMLError:
        return None


def default_folder():
    """Return results/profile_<job number>, or with the time outside a batch job."""
    job = os.environ.get("PBS_JOBID") or os.environ.get("SLURM_JOB_ID") or time.strftime("%Y%m%d-%H%M%S")
    return Path("results") / f"profile_{job.split('.')[0]}"


def under(tool, folder):
    """Return the words before a command with which `tool` records it, from our marks on, into a file for each
    process."""
    if tool == "nvprof":
        return [
            "nvprof",
            "--profile-child-processes",
            "--profile-from-start",
            "off",
            "-o",
            f"{folder}/process%p.nvprof",
        ]
    if tool == "nsys":
        return [
            "nsys",
            "profile",
            "--trace=cuda,nvtx",
            "--sample=none",
            "--cpuctxsw=none",
            "--capture-range=cudaProfilerApi",
            "--capture-range-end=stop",
            "--export=sqlite",
            "--force-overwrite=true",
            "-o",
            f"{folder}/process_%h_%p",
        ]
    return []
