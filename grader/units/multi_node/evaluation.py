"""What Chainer's evaluator must do."""

import numpy

from grader.checks import criteria


def evaluates_all(seen, case, expected):
    """Judge that rank 0, which keeps the only log, has the loss and the accuracy of the whole test set, after each of
    two epochs."""
    first, second = map(numpy.array, seen[0]["found"])
    problem = criteria.explained_by(first, expected, criteria.SINGLE)
    evaluated, images = sum(of_rank.get("images", 0) for of_rank in seen), sum(case["lengths"])
    if problem is None and evaluated > images:
        return (
            f"the ranks evaluate {evaluated} images in total, but the test set has {images}: evaluate only each"
            " rank's own part, which the script already has"
        )
    if not problem and numpy.isnan(first).any() and 0 in case["lengths"]:
        problem = (
            "a rank without test images divides 0 by 0: add up the sums and the numbers of images of all ranks,"
            " then divide"
        )
    if problem is not None:
        parts = ", ".join(map(str, case["lengths"]))
        found, right = in_words(first, expected["right"])
        return criteria.with_reason(
            f"rank 0 reports {found}, but the {images} test images (per rank: {parts}) have {right}", problem
        )
    if late := [rank for rank, of_rank in enumerate(seen) if of_rank["passes"][0] != of_rank["passes"][1]]:
        batches, others = seen[late[0]]["passes"]
        return (
            f"rank {late[0]} evaluates {batches} batches in the first epoch, but {others} in the second: evaluate all"
            " test images after each epoch"
        )
    if not criteria.close(second, expected["second"], criteria.SINGLE):
        found, right = in_words(second, expected["second"])
        return (
            f"rank 0 reports {found} after the second epoch, but the test images have {right}; the first epoch is"
            " right: does each evaluation reset its sums?"
        )
    if all(of_rank["counts seconds"] for of_rank in seen):
        return None
    return (
        "`evaluator` has no `seconds`, which the script's last line reads: start from the course's evaluator, which"
        " counts them"
    )


def in_words(*results):
    """Return two results, [loss, accuracy], in words, with enough digits to show how they differ."""
    digits = criteria.digits_that_differ(*results)
    return [f"loss {loss:.{digits}g} and accuracy {accuracy:.{digits}g}" for loss, accuracy in results]
