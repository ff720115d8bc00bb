"""What the embedded PBS costs: the time of qsub, and from qsub to a job's first line."""

import os
import statistics
import subprocess
import sys
import time

ROUNDS = 5
IMPORTS = "import torch; print('ready', flush=True)"


def measure(folder):
    """Rows (what, value, target), in seconds; what Python and torch need to start is measured without qsub, in
    turns."""
    environment = os.environ | {
        "HANDSON_PBS_HOME": str(folder / "pbs"),
        "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
    }
    script = folder / "first_line.sh"
    script.write_text(f'#!/bin/bash\n#PBS -N first\nexec > {folder}/line\n"{sys.executable}" -c "{IMPORTS}"\n')
    line = folder / "line"
    submits, extra = [], []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-c", IMPORTS], env=environment | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE
        ) as process:
            process.stdout.readline()
            direct = time.perf_counter() - begin
        line.unlink(missing_ok=True)
        begin = time.perf_counter()
        subprocess.run(
            ["qsub", "-j", "oe", str(script)], env=environment, cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        submits.append(time.perf_counter() - begin)
        while not (line.exists() and "ready" in line.read_text()):
            if time.perf_counter() - begin > 60:
                sys.exit("the job did not print its line within 60 s")
            time.sleep(0.005)
        extra.append(time.perf_counter() - begin - direct)
    return [
        ("seconds that qsub takes", f"{statistics.median(submits):.3f}", "under 0.3"),
        (
            "seconds from qsub to the first line, beyond starting Python and torch",
            f"{statistics.median(extra):.3f}",
            "at most 0.5",
        ),
    ]
