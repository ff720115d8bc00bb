"""The leaderboards of the units that grade with a contest: the fastest solutions first, with names for the instructor,
and without names, or with pseudonyms, for students."""

import hmac
from dataclasses import dataclass

from grader.course import has_contest
from grader.instructors.grade import seeds
from grader.instructors.scores import Score
from handson.made_text import CONSONANTS, VOWELS

SYLLABLES = 4  # a pseudonym has so many: there are 52 million pseudonyms


@dataclass(frozen=True)
class Row:
    """A student's place: the Score, the measurements of the contest, and the pseudonym ("" without pseudonyms)."""

    score: Score
    measured: dict
    pseudonym: str


def standings(scores, folder):
    """Return {unit: [Row]} of the students whose training run counts in the contest of a unit, the fastest first.

    folder: the gradebook's folder, whose secret determines the pseudonyms. Raises SecretError.
    """
    boards = {}
    for score in scores:
        for unit in filter(lambda unit: has_contest(unit.name), score.units):
            measured = [one.measured for gap in unit.gaps for one in gap.verdicts if one.measured]
            if measured:
                name = pseudonym(seeds.secret(folder), score.student) if score.rules.pseudonyms else ""
                boards.setdefault(unit.name, []).append(Row(score, measured[0], name))
    return {
        unit: sorted(rows, key=lambda row: (-row.measured["speed_up"], row.score.student))
        for unit, rows in boards.items()
    }


def pseudonym(secret, student):
    """Return the name of a student on the leaderboards that students see. It is the same in each report, and without
    the secret nobody can find the student."""
    digest = hmac.digest(secret, f"pseudonym\0{student}".encode(errors="replace"), "sha256")
    pairs = zip(digest[:SYLLABLES], digest[SYLLABLES : 2 * SYLLABLES])
    return "".join(CONSONANTS[one % len(CONSONANTS)] + VOWELS[other % len(VOWELS)] for one, other in pairs).capitalize()
