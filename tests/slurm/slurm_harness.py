"""Jobs on the Slurm of the tests: the training runs of the Chainer track are submitted at once, and each test waits for
its own."""

import os
import re
import shutil
import sysconfig
from pathlib import Path

from waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
TASKS = ("single_gpu", "multi_gpu", "multi_node")
FOLDERS = {task: path.name for task in TASKS for path in (ROOT / "solutions").glob(f"[0-9][0-9]_{task}")}
NO_PBS = "unset ${!PBS_*} # as on a Slurm that is set up without them\n\ncd "
PATIENCE = 240  # seconds that a job is waited for
# As in a shell after `source .venv/bin/activate`: the course's commands come first, Slurm's are behind.
ENVIRONMENT = {
    "PATH": f"{sysconfig.get_path('scripts')}:/usr/bin:/bin",
    "HOME": os.path.expanduser("~"),
    "LANG": "C.UTF-8",
}


class Jobs:
    """What was submitted, and where its output is."""

    def __init__(self, cluster, folder):
        self.cluster, self.folder, self.numbers = cluster, folder, {}
        for name in FOLDERS.values():
            shutil.copytree(
                ROOT / "solutions" / name,
                folder / name,
                ignore=shutil.ignore_patterns("__pycache__", "results", "*.[oe][0-9]*"),
            )
        for task, name in FOLDERS.items():
            script = f"run_{task}_training.sh"
            self.submit("chainer", task, "qsub", "-v", "TRACK=chainer,OPTIONS=--size=16", "-j", "oe", script)
            text = (folder / name / script).read_text()
            (folder / name / "native.sh").write_text(text.replace("\ncd ", f"\n{NO_PBS}", 1))
            self.submit(
                "native", task, "sbatch", "-o", "%x.o%j", "native.sh", TRACK="chainer", OPTIONS="-e 1 --size 16"
            )

    def submit(self, kind, task, *command, **variables):
        printed = self.cluster.run(*command, folder=self.folder / FOLDERS[task], env=ENVIRONMENT | variables)
        self.numbers[kind, task] = re.fullmatch(r"(?:Submitted batch job )?(\d+)\n", printed)[1]

    def run(self, text, *arguments, **variables):
        """Submit a script with -j oe, wait for its end; returns its output and its number."""
        (self.folder / "script.sh").write_text(text)
        number = self.cluster.run(
            "qsub", "-j", "oe", *arguments, "script.sh", folder=self.folder, env=ENVIRONMENT | variables
        ).strip()
        self.wait(number)
        return (self.folder / f"script.sh.o{number}").read_text(), number

    def wait(self, number):
        """Wait for the end of a job; returns its state."""

        def ended():
            shown = self.cluster.run("scontrol", "--oneliner", "show", "job", number)
            state = re.search(r" JobState=(\w+) ", shown)[1]
            return state if state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING") else None

        return wait_until(ended, f"job {number} to end", PATIENCE)

    def finished(self, kind, task):
        """Wait for a training job; returns its state, number and folder."""
        number = self.numbers[kind, task]
        return self.wait(number), number, self.folder / FOLDERS[task]
