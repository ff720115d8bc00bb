"""What Chainer's evaluator must do."""

import numpy

from grader.checks import criteria


def evaluates_all(seen, case, expected):
    """A judge: on rank 0, which alone keeps a log, loss and accuracy are those of the whole test set, after each of two
    epochs."""
    first, second = map(numpy.array, seen[0]["found"])
    problem = criteria.explained_by(first, expected, criteria.SINGLE)
    evaluated, images = sum(of_rank.get("images", 0) for of_rank in seen), sum(case["lengths"])
    if problem is None and evaluated > images:
        return (
            f"the ranks evaluate {evaluated} images in all, and the test set has {images}: each rank takes its own"
            " part, which is in the script already"
        )
    if not problem and numpy.isnan(first).any() and 0 in case["lengths"]:
        problem = (
            "a rank without a test image divides 0 by 0: add up the ranks' sums and numbers of images before you divide"
        )
    if problem is not None:
        parts = ", ".join(map(str, case["lengths"]))
        found, right = in_words(first, expected["right"])
        return criteria.with_reason(
            f"rank 0 finds {found}; but the {images} test images (of the ranks: {parts}) have {right}", problem
        )
    if late := [rank for rank, of_rank in enumerate(seen) if of_rank["passes"][0] != of_rank["passes"][1]]:
        batches, others = seen[late[0]]["passes"]
        return (
            f"in the first epoch rank {late[0]} evaluates {batches} batches, and in the second {others}: the test"
            " images go through the model in each epoch"
        )
    if not criteria.close(second, expected["second"], criteria.SINGLE):
        found, right = in_words(second, expected["second"])
        return (
            f"rank 0 is right after the first epoch; after the second it finds {found}, and the test images have"
            f" {right}: does each evaluation begin its sums anew?"
        )
    if all(of_rank["counts seconds"] for of_rank in seen):
        return None
    return (
        "`evaluator` has no `seconds`, which the script's last line reads: begin with the course's evaluator, which"
        " counts them"
    )


def in_words(*results):
    """Two results, [loss, accuracy], with so many digits that the words show how they differ."""
    digits = criteria.digits_that_differ(*results)
    return [f"loss {loss:.{digits}g} and accuracy {accuracy:.{digits}g}" for loss, accuracy in results]
