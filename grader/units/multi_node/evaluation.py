"""What the evaluators of both tracks must do."""

import numpy

from grader.checks import criteria


def evaluates_all(seen, case, expected):
    """A judge: loss and accuracy are those of the whole test set, on as many ranks as the oracle has values for."""
    found = numpy.array([of_rank["found"] for of_rank in seen])[: len(expected["right"])]
    problem = criteria.explained_by(found, expected, criteria.SINGLE)
    evaluated, images = sum(of_rank.get("images", 0) for of_rank in seen), sum(case["lengths"])
    if problem is None and evaluated > images:
        return f"the ranks evaluate {evaluated} images in all, and the test set has {images}: each rank takes its own part, which is in the script already"
    if not problem and numpy.isnan(found).any() and 0 in case["lengths"]:
        problem = "a rank without a test image divides 0 by 0: add up the ranks' sums and numbers of images before you divide"
    if problem is None and (late := [rank for rank, of_rank in enumerate(seen) if of_rank["passes"][0] != of_rank["passes"][1]]):
        first, second = seen[late[0]]["passes"]
        return f"in the first epoch rank {late[0]} evaluates {first} batches, and in the second {second}: the test images go through the model in each epoch"
    if problem is None:
        if all(of_rank["counts seconds"] for of_rank in seen):
            return None
        return "`evaluator` has no `seconds`, which the script's last line reads: begin with the course's evaluator, which counts them"
    digits = criteria.digits_apart(found, expected["right"])
    numbers = f"loss {{:.{digits}g}} and accuracy {{:.{digits}g}}".format
    own = "; ".join(f"rank {rank} finds {numbers(*values)}" for rank, values in enumerate(found))
    parts = ", ".join(map(str, case["lengths"]))
    right = f"{own}; but the {images} test images (of the ranks: {parts}) have {numbers(*expected['right'][0])}"
    return criteria.because(right, problem)
