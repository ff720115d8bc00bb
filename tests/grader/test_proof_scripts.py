"""What tests.bench.proof_scripts makes of the notes of a run: it must see what makes an answer wrong, and nothing else.
And no gap is without a proof."""

from grader import exercises, gaps
from grader.course import UNITS
from grader.instructors.proofs import of_unit
from tests.bench import proof_jobs, proof_notebooks, proof_scripts
from tests.bench.proof_scripts import alike, counts_of_steps, facts, ranges, shared_out, steps_alone, waits


def proved(unit, file, gap):
    """Whether one of the proofs runs the known answers to a gap of an exercise."""
    if file.endswith(".ipynb"):
        return gap in proof_notebooks.gaps_of(unit, file)
    if file.endswith(".sh"):
        return file == proof_jobs.scripts().get(unit) and gap == proof_jobs.GAP
    in_ranks = file.split("/", 2)[2] in of_unit(unit, "RUNS")
    return in_ranks or proof_scripts.file_of(unit, gap, file.split("/")[-2]) == file


def test_all_known_answers_are_run_by_a_proof():
    every = [
        (unit, part.file, gap.name)
        for unit, parts in UNITS.items()
        for part in parts
        for gap in exercises.given_out(part.file).gaps
    ]
    assert [one for one in every if not proved(*one)] == []


def run(**noted):
    """Notes of a run that has ended, {rank: notes}."""
    return {"failure": "", "log": []} | {rank.removeprefix("rank"): notes for rank, notes in noted.items()}


def trained_on(*batches, totals=()):
    return [["totals", totals], *(["train", batch] for batch in batches)]


def test_an_image_on_two_ranks_is_seen():
    right = facts("split", run(rank0=trained_on([3, 0], totals=[4]), rank1=trained_on([1, 2], totals=[4])))
    wrong = facts("split", run(rank0=trained_on([3, 0], totals=[4]), rank1=trained_on([1, 3], totals=[4])))
    assert not alike(wrong, right)


def test_shards_that_are_dealt_otherwise_are_as_right():
    one = facts("split", run(rank0=trained_on([3, 0], totals=[4]), rank1=trained_on([1, 2], totals=[4])))
    other = facts("split", run(rank0=trained_on([1, 2], totals=[4]), rank1=trained_on([3, 0], totals=[4])))
    assert alike(one, other)


def test_images_in_the_order_of_the_file_are_seen():
    def in_order(*shards):
        batches = {f"rank{rank}": trained_on(shard, totals=[6]) for rank, shard in enumerate(shards)}
        return facts("split", run(**batches))["in their order"]

    assert in_order([0, 1, 2], [5, 4, 3])
    assert in_order([0, 2, 4], [1, 3, 5])
    assert not in_order([0, 1, 4], [2, 3, 5])


def test_lengths_that_are_not_those_of_the_shards_are_seen():
    assert facts("split", run(rank0=trained_on([3, 0], totals=[3])))["steps that have not `totals` images"] == 1


def test_epochs_may_have_any_orders_but_not_the_same_one():
    right, other, wrong = (
        facts("shuffle", run(rank0=trained_on(*batches)))
        for batches in ([[0, 2], [1], [2, 1], [0]], [[1, 2], [0], [1, 0], [2]], [[2, 1], [0]] * 2)
    )
    assert alike(other, right)
    assert not alike(wrong, right)


def test_waits_count_between_the_steps_of_an_epoch_and_not_at_its_end():
    step, wait, end = ["train", [0]], ["wait", "item"], ["epoch", {}]
    assert waits([wait, step, step, wait, end, step, step, wait, end]) == 0
    assert waits([step, wait, step, wait, end, step, wait, step, wait, end]) == 2


def test_an_operation_belongs_to_each_range_that_has_the_name_of_a_part():
    notes = [
        ["begin", "step"],
        ["begin", "forward"],
        ["operation", "loss"],
        ["finish", "forward"],
        ["operation", "backward"],
        ["finish", "step"],
    ]
    assert ranges(notes) == {"loss in forward": 1, "backward in none": 1, "left open": 0}
    within = [
        ["begin", "forward"],
        ["begin", "backward"],
        ["operation", "backward"],
        ["finish", "backward"],
        ["finish", "forward"],
    ]
    assert ranges(within) == {"backward in backward": 1, "backward in forward": 1, "left open": 0}


def test_a_range_that_nobody_closes_is_seen():
    step = [["begin", "optimize"], ["operation", "step"]]
    assert ranges(step) == {"step in optimize": 1, "left open": 1}


def test_spellings_of_a_part_are_the_same_part():
    assert (
        ranges([["begin", "AllReduce"], ["operation", "all-reduce of many"]])["all-reduce of many in all-reduce"] == 1
    )


def test_images_that_are_scaled_a_second_time_are_seen():
    once, again = (
        facts("loader", run(rank0=[["scaled", [1, 2]], ["scaled", [one]]]))["images scaled again"]["rank 0"]
        for one in (3, 1)
    )
    assert (once, again) == (0, 1)


def test_images_of_all_steps_may_be_counted_and_no_other_number():
    def counted(images):
        batches = [["train", [0, 1]], ["train", [2, 0]]]  # an epoch of three images, and the first of the next
        return run(
            rank0=[*batches, ["end", {"images": images, "throughput * seconds": images, "parameters": []}]],
            rank1=[*batches, ["end", {"parameters": []}]],
        )

    for images, right in (8.0, True), (6.0, False), (4.0, False):
        found, as_right = facts("throughput", counted(images) | {"printed": []}), counts_of_steps(counted(images))
        assert all(alike(found[what], as_right[what]) for what in ("images", "throughput * seconds")) == right


def test_an_image_that_is_left_out_for_good_and_ranks_with_more_steps_are_seen():
    right = shared_out("shuffle", run(rank0=trained_on([3, 0], [4]), rank1=trained_on([1], [2])))
    assert alike(shared_out("shuffle", run(rank0=trained_on([1, 3], [0]), rank1=trained_on([2], [4]))), right)
    assert not alike(shared_out("shuffle", run(rank0=trained_on([3, 0], [3]), rank1=trained_on([1], [2]))), right)
    assert not alike(shared_out("shuffle", run(rank0=trained_on([3, 0], [4]), rank1=trained_on([1, 2]))), right)


def test_a_step_that_needs_a_number_is_the_last_one_where_there_are_none():
    step = ["operation", "step"]
    to_the_end, fetched, in_a_thread = (
        steps_alone("losses", run(rank0=noted))
        for noted in ([step, step], [step], [step, ["fails", "no number"], step])
    )
    assert len({str(one) for one in (to_the_end, fetched, in_a_thread)}) == 3


def test_a_run_that_fails_is_not_like_one_that_ends():
    failed = run(rank0=[]) | {"failure": "it fails"}
    assert not alike(facts("step", failed), facts("step", run(rank0=[])))


def test_every_gap_of_a_training_script_can_be_proven():
    for unit, parts in UNITS.items():
        for part in parts:
            if part.track in of_unit(unit, "CASES"):
                for gap in gaps.answers(exercises.solution(part.file).read_text()):
                    assert proof_scripts.file_of(unit, gap, part.track) == part.file


def test_scripts_get_as_many_gpus_as_they_accept():
    """The scripts for a single GPU refuse several."""
    for unit in UNITS:
        for case in of_unit(unit, "CASES").values():
            assert (len(case.gpus.split(",")) == 1) == (unit == "single_gpu")
