"""Classes of students for tests: each hands in a folder with what is asked of them."""

from answers.known import of_unit
from grader import exercises
from grader.course import UNITS
from grader.exercises import solved


def hand_in(folder, student, unit, texts):
    """Put {part's place in UNITS[unit]: text} into the student's folder."""
    for place, text in texts.items():
        path = folder / student / UNITS[unit][place].file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def small_class(folder, unit="single_gpu"):
    """ann has the solution, bob has done nothing, and others have a mistake each; all in the PyTorch track. Returns how
    many there are."""
    place = next(place for place, part in enumerate(UNITS[unit]) if part.track == "pytorch")
    part = UNITS[unit][place]
    hand_in(folder, "ann", unit, {place: solved(part.file)})
    hand_in(folder, "bob", unit, {place: exercises.given_out(part.file).text})
    mistakes = of_unit(unit, part.folder)[0][:3]
    for number, mistake in enumerate(mistakes):
        hand_in(folder, f"mistake{number}", unit, {place: solved(part.file, **{mistake.gap: mistake.code})})
    return 2 + len(mistakes)
