"""Which track a file of a unit belongs to."""

from grader.course import UNITS, _part


def test_a_script_that_both_tracks_have_is_of_its_track():
    names = {"pytorch/one.py": (), "chainer/one.py": (), "pytorch/other.py": (), "notebook": ()}
    assert {name: _part("50_unit", name, names).track for name in names} == {
        "pytorch/one.py": "pytorch",
        "chainer/one.py": "chainer",
        "pytorch/other.py": "",
        "notebook": "",
    }


def test_known_answers_and_hidden_cases_follow_the_folder():
    assert _part("50_unit", "pytorch/other.py", {"pytorch/other.py": ()}).folder == "pytorch"
    assert {part.folder for part in UNITS["communication"]} == {"pytorch", "chainer", ""}
