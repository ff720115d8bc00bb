"""Known answers to the functions of notebooks: the right ones do what the solution does, the wrong ones do not."""

import pytest

from answers.known import of_unit
from answers.proofs import proof_notebooks

INPUTS = 200


@pytest.mark.parametrize(
    "unit",
    [pytest.param(unit, marks=() if unit == "start" else pytest.mark.thorough) for unit in proof_notebooks.notebooks()],
)
def test_right_answers_do_what_the_solution_does_and_wrong_ones_do_not(unit, monkeypatch):
    monkeypatch.setattr(proof_notebooks, "INPUTS", INPUTS)
    wrong, right = ([one for one in answers if one.gap in proof_notebooks.functions(unit)] for answers in of_unit(unit))
    assert [one.name for one in wrong if not any(proof_notebooks.differences(unit, one.gap, one.code))] == []
    assert [sentence for one in right for sentence in proof_notebooks.differences(unit, one.gap, one.code)] == []
