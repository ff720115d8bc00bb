"""Which track a file of a unit belongs to."""

from grader.course import UNITS, _part


def test_a_script_that_both_tracks_have_is_of_its_track():
    names = dict.fromkeys(("pytorch/one.py", "chainer/one.py", "pytorch/other.py", "notebook", "notebook_b"), ())
    assert {name: _part("50_unit", name, names).track for name in names} == {
        "pytorch/one.py": "pytorch",
        "chainer/one.py": "chainer",
        "pytorch/other.py": "",
        "notebook": "",
        "notebook_b": "",
    }


def test_a_second_notebook_has_a_letter_behind_its_number():
    names = {"notebook": (), "notebook_b": ()}
    files = [_part("50_unit", name, names).file for name in names]
    assert files == ["notebooks/50_unit.ipynb", "notebooks/50b_unit.ipynb"]


def test_known_answers_and_hidden_cases_follow_the_folder():
    assert _part("50_unit", "pytorch/other.py", {"pytorch/other.py": ()}).folder == "pytorch"
    assert {part.folder for part in UNITS["communication"]} == {"pytorch", "chainer", ""}


def test_what_is_in_sections_with_a_star_gives_no_points():
    worth = {
        check.gap: sum(one.points for one in check.criteria) for part in UNITS["communication"] for check in part.checks
    }
    assert worth["lost_share"] == worth["source"] == 0 and worth["block_bytes"] == 2
