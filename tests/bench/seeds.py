"""Seeds: every known answer judged under 200 seeds of its inputs; none may get another verdict by luck."""

import time

from grader.box import Server
from grader.probes import FOR_NOTEBOOKS, FOR_SCRIPTS
from tests.grader.known_under_seeds import entries, unexpected

SEEDS = 200


def measure(folder):
    """Rows (what, value, target)."""
    begin, count, wrong = time.perf_counter(), 0, []
    servers = {True: Server(FOR_NOTEBOOKS), False: Server(FOR_SCRIPTS)}
    try:
        for unit, part, check, entry, is_wrong in entries():
            count += 1
            for problem, seed in unexpected(unit, part, check, entry, is_wrong, range(SEEDS), servers[part.file.endswith(".ipynb")]).items():
                wrong.append(entry)
                print(f"  {unit} {part.track} {entry['gap']}, {entry['name']!r}, seed {seed}: {problem}", flush=True)
    finally:
        for server in servers.values():
            server.stop()
    return [
        (f"known answers ({count}) that get another verdict than theirs under one of {SEEDS} seeds", f"{len(wrong)}", "0"),
        ("  minutes that took", f"{(time.perf_counter() - begin) / 60:.1f}", ""),
    ]
