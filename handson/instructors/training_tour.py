"""``python -m handson tour``: submit the training jobs of all units with ``qsub -j oe``, and show their throughput in a
table and a figure."""

import shlex
import shutil
import time

from handson.cluster.follow import follow, sending, submit
from handson.compare import compare
from handson.files import COURSE

SOLUTIONS = COURSE / "solutions"


def trainings(track):
    """Return the job scripts of all units that train with `track`, in the order of the units."""
    return sorted(
        path for path in SOLUTIONS.glob("[0-9][0-9]_*/run_*_training.sh") if any(path.parent.glob(f"{track}/*.py"))
    )


def tour(folder, tracks, options, say):
    """Run every training job with each of `tracks` in copies of the solutions under `folder`; `options` are passed to
    the training scripts."""
    begin, outs = time.monotonic(), []
    of_tracks = {track: trainings(track) for track in tracks}
    scripts = sorted({script for of_track in of_tracks.values() for script in of_track})
    say(
        f"Each of the course's {len(scripts)} trainings runs as a batch job, with {' and with '.join(tracks)}"
        f" ({options or 'default options'})."
    )
    for script in scripts:
        place = folder / script.parent.name
        shutil.copytree(
            script.parent,
            place,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__", "results", "*.[oe][0-9]*"),
        )
        for track in tracks:
            if script not in of_tracks[track]:
                continue
            variables = {"TRACK": track, "OPTIONS": options}
            arguments = ["-j", "oe", script.name]
            job = submit(place, *arguments, **variables)
            words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
            say(f"\n$ {' '.join([*words, 'qsub', *sending(variables), *arguments])}\n{job}")
            follow(job, say=say)
            outs += place.glob(f"results/*_{job.split('.')[0]}")
    say("")
    compare(outs, folder / "throughput.png", say)
    say(f"The tour took {time.monotonic() - begin:.0f} s; everything it wrote is in {folder}")
