"""``python -m handson tour``: the three tasks, each submitted with ``qsub -j oe``, then their throughput in a table and a figure."""

import shlex
import shutil
import time

from handson.cluster.follow import follow, submit
from handson.compare import compare
from handson.files import COURSE

SOLUTIONS = COURSE / "solutions"
TASKS = {"single_gpu": "01_single_gpu", "multi_gpu": "02_multi_gpu", "multi_node": "03_multi_node"}


def tour(folder, tracks, options, say):
    """Run every task on each of `tracks` in copies of the solutions under `folder`; `options` go to the training scripts."""
    begin, outs = time.monotonic(), []
    say(f"Each of the course's {len(TASKS)} tasks runs as a batch job, with {' and with '.join(tracks)} ({options or 'default options'}).")
    for task, name in TASKS.items():
        place = folder / name
        shutil.copytree(SOLUTIONS / name, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "results", "*.[oe][0-9]*"))
        for track in tracks:
            variables = {"TRACK": track, "OPTIONS": options}
            # -V sends them along whatever is in them; the values of -v can have neither commas nor, with Slurm, spaces.
            arguments = ["-V", "-j", "oe", f"run_{task}_training.sh"]
            job = submit(place, *arguments, **variables)
            words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
            say(f"\n$ {' '.join([*words, 'qsub', *arguments])}\n{job}")
            follow(job, say=say)
            outs.append(place / "results" / f"{task}_{track}_{job.split('.')[0]}")
    say("")
    compare(outs, folder / "throughput.png", say)
    say(f"The tour took {time.monotonic() - begin:.0f} s; everything it wrote is in {folder}")
