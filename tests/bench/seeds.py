"""Seeds: every known answer judged under 200 seeds of its inputs; none may get another verdict by luck.

``python -m tests.bench.seeds UNIT [SEEDS]`` takes those of one unit.
"""

import sys
import time

from grader.box import Server
from grader.probes import FOR_NOTEBOOKS, FOR_SCRIPTS
from tests.grader.known_under_seeds import entries, unexpected

SEEDS = 200


def measure(folder, unit=None, seeds=SEEDS):
    """Rows (what, value, target). unit: whose answers are judged; None: those of all units."""
    begin, count, wrong = time.perf_counter(), 0, []
    servers = {True: Server(FOR_NOTEBOOKS), False: Server(FOR_SCRIPTS)}
    try:
        for of_unit, part, check, entry, is_wrong in entries():
            if unit not in (None, of_unit):
                continue
            count += 1
            for problem, seed in unexpected(of_unit, part, check, entry, is_wrong, range(seeds), servers[part.file.endswith(".ipynb")]).items():
                wrong.append(entry)
                print(f"  {of_unit} {part.track} {entry['gap']}, {entry['name']!r}, seed {seed}: {problem}", flush=True)
    finally:
        for server in servers.values():
            server.stop()
    return [
        (f"known answers ({count}) that get another verdict than theirs under one of {seeds} seeds", f"{len(wrong)}", "0"),
        ("  minutes that took", f"{(time.perf_counter() - begin) / 60:.1f}", ""),
    ]


if __name__ == "__main__":
    for row in measure(None, sys.argv[1], int((sys.argv[2:] or [SEEDS])[0])):
        print(*row, flush=True)
