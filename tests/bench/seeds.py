"""Seeds: every known answer judged under 200 seeds of its inputs; none may get another verdict by luck. And the typical
mistakes in notebooks' functions under 2,000 seeds: none may look right, or like another one.

``python -m tests.bench.seeds UNIT [SEEDS]`` takes those of one unit.
"""

import sys
import time

from grader.course import ready
from grader.instructors.known_answers import servers
from tests.grader.known_under_seeds import alike, entries, unexpected

SEEDS, OF_MISTAKES = 200, 2000


def measure(folder, unit=None, seeds=SEEDS):
    """Rows (what, value, target). unit: whose answers are judged; None: those of all units that can be checked here."""
    begin, count, wrong = time.perf_counter(), 0, []
    units = [unit] if unit else ready()
    pairs = set(alike(range(OF_MISTAKES), units))
    for pair in pairs:
        print("  " + ", ".join(pair), flush=True)
    with servers() as server_for:
        for of_unit, part, check, entry, is_wrong in entries():
            if of_unit not in units:
                continue
            count += 1
            for problem, seed in unexpected(
                of_unit, part, check, entry, is_wrong, range(seeds), server_for(part.file)
            ).items():
                wrong.append(entry)
                print(f"  {of_unit} {part.track} {entry['gap']}, {entry['name']!r}, seed {seed}: {problem}", flush=True)
    return [
        (
            (
                f"known answers of {', '.join(units)} ({count}) that get another verdict than theirs under one of"
                f" {seeds} seeds"
            ),
            f"{len(wrong)}",
            "0",
        ),
        (
            f"typical mistakes that look right, or like another one, under one of {OF_MISTAKES:,} seeds",
            f"{len(pairs)}",
            "0",
        ),
        ("  minutes that took", f"{(time.perf_counter() - begin) / 60:.1f}", ""),
    ]


if __name__ == "__main__":
    for row in measure(None, sys.argv[1], int((sys.argv[2:] or [SEEDS])[0])):
        print(*row, flush=True)
