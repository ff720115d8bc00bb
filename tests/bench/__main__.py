"""``python -m tests.bench [NAME...]``: measure, and print each figure beside what it should reach."""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench import (
    batch,
    chainer,
    checks,
    class_,
    communication,
    frameworks,
    grading,
    model_parallel,
    nodes,
    overhead,
    predictions,
    profiling,
    same_scores,
    scaling,
)

MODULES = (
    scaling,
    predictions,
    overhead,
    batch,
    chainer,
    nodes,
    communication,
    model_parallel,
    frameworks,
    profiling,
    checks,
    grading,
    same_scores,
    class_,
)
BENCHES = {module.__name__.rpartition(".")[2].rstrip("_"): module.measure for module in MODULES}


def main():
    names = sys.argv[1:] or list(BENCHES)
    if unknown := set(names) - set(BENCHES):
        sys.exit(f"tests.bench: there is no {', '.join(sorted(unknown))}; the benchmarks are: {', '.join(BENCHES)}")
    if len(names) > 1:  # each in a process of its own: one may wait for the end of all that it has started
        sys.exit(max(subprocess.run([sys.executable, "-m", "tests.bench", name]).returncode for name in names))
    [name] = names
    print(f"\n{name}: {sys.modules[BENCHES[name].__module__].__doc__.splitlines()[0]}", flush=True)
    with tempfile.TemporaryDirectory(prefix="handson-bench-") as folder:
        for what, value, target in BENCHES[name](Path(folder)):
            print(f"  {what:<74} {value:>9}  {target}", flush=True)


if __name__ == "__main__":
    main()
