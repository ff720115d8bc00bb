"""The checks of mesh.py: which ranks share a model, and which ranks share the images."""

import itertools

from grader.checks import criteria
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array

PROBES, ORACLES = "grader.units.model_parallel.probes.probe_mesh:", "grader.units.model_parallel.oracles.oracle_mesh:"
MANY = 16  # ranks of a large job, as in the probe
TOGETHER = {"tensor": "share a model", "data": "share the images"}


def two_groups(seen, case, expected):
    """Judge that the ranks of a node form a group in the dimension `inside`, and the ranks with the same index on all
    nodes form a group in the other dimension."""
    inside, size = case["inside"], case["ranks_of_a_node"]
    between = "data" if inside == "tensor" else "tensor"
    for rank, of_rank in enumerate(seen):
        right = {
            inside: [rank // size * size + place for place in range(size)],
            between: [node * size + rank % size for node in range(case["nodes"])],
        }
        if of_rank == right:
            continue
        if of_rank == {inside: right[between], between: right[inside]}:
            return (
                f"ranks {right[between]} {TOGETHER[inside]}, but they are on different nodes; with inside = {inside!r},"
                f" the ranks of one node should do so: {right[inside]}"
            )
        wrong = next(name for name in right if of_rank[name] != right[name])
        return (
            f"for rank {rank}, the group {wrong!r} has the ranks {of_rank[wrong]} instead of {right[wrong]}: each node"
            f" has {size} ranks"
        )
    return None


def _where(case):
    """Return the ranks of each part of the images, in the case's layout."""
    return case["layout"] if case["names"][0] == "data" else list(zip(*case["layout"]))


def same_images(seen, case, expected):
    images = [of_rank["images"] for of_rank in seen]
    for ranks in _where(case):
        other = next((rank for rank in ranks if images[rank] != images[ranks[0]]), None)
        if other is not None:
            return (
                f"ranks {ranks[0]} and {other} have different images, but they share a model, so they need the same"
                " images"
            )
    return None


def other_images(seen, case, expected):
    first = {ranks[0]: set(seen[ranks[0]]["images"]) for ranks in _where(case)}
    twice = -case["images"] % len(
        first
    )  # DistributedSampler repeats so many images, so that all parts have the same length
    for (one, of_one), (other, of_other) in itertools.combinations(first.items(), 2):
        if len(of_one & of_other) > twice and of_one != of_other:
            return (
                f"ranks {one} and {other} have {len(of_one & of_other)} images in common: parts of one shuffled order"
                " have none in common, so pass the same seed on all ranks"
            )
        if of_one == of_other:
            return (
                f"ranks {one} and {other} have the same images, but they have the same part of the model, so they"
                " should have different images"
            )
    missing = set(range(case["images"])) - set().union(*first.values())
    # drop_last leaves out fewer images
    if len(missing) < len(first):
        return None
    drawn = " and ".join(str(len(of_one)) for of_one in first.values())
    return (
        f"{len(missing)} of {case['images']} images are on no rank: the groups of ranks that share a model have {drawn}"
        " images; divide the images into as many parts as there are groups"
    )


def at_random(seen, case, expected):
    pairs = [pair for of_rank in seen for name in ("images", "other") for pair in itertools.pairwise(of_rank[name])]
    if sum(before > after for before, after in pairs) < len(pairs) / 8:  # in a shuffled order, about half descend
        return "`sampler` returns the images nearly in the order of the data set: it should shuffle them"
    if all(of_rank["images"] == of_rank["next"] for of_rank in seen):
        return "the order of the images is the same in each epoch: sampler.set_epoch(epoch) should change it"
    return (
        "the order of the images is the same with another seed: pass `seed` to the sampler"
        if all(of_rank["images"] == of_rank["other"] for of_rank in seen)
        else None
    )


def means_of_the_same_part(seen, case, expected):
    for rank, of_rank in enumerate(seen):
        if not criteria.close(of_rank["parameters"], expected["parameters"][rank]):
            return (
                f"rank {rank} has lost its part of the model: DistributedDataParallel has broadcast another rank's part"
                " to it; pass the group of the ranks with the same part"
            )
    for rank, of_rank in enumerate(seen):
        found = of_rank["gradients"]
        if criteria.close(found, expected["same_part"][rank]):
            continue
        if criteria.close(found, expected["own"][rank]):
            return f'on rank {rank}, the gradients come only from its own images: average them in the group "data"'
        return f"on rank {rank}, the gradients are not averaged over the ranks that have the same part of the model"
    return None


def of_its_own(seen, case, expected):
    """Judge that each rank draws different random numbers."""
    if any(of_rank["untouched"] for of_rank in seen):
        return (
            "your code does not seed the generator that dropout uses, so all ranks draw the same random numbers as"
            " before: call torch.manual_seed"
        )
    if twins := _twins(seen[0]["many"]):
        more = f", in a job of {len(seen[0]['many'])} ranks" if max(twins) >= len(seen) else ""
        return (
            f"{criteria.ranks(twins)} draw the same random numbers{more}: they would always drop the same unit of their"
            " parts"
        )
    if twins := _twins([of_rank["zero"] for of_rank in seen]):
        return (
            f"with seed 0, the default, {criteria.ranks(twins)} draw the same random numbers: 0 times any rank is 0, so"
            " add the rank"
        )
    if twins := _twins([of_rank["first"] for of_rank in seen]):
        return (
            f"{criteria.ranks(twins)} draw the same random numbers: they would always drop the same unit of their parts"
        )
    on_gpus = [of_rank["gpus"][0] for of_rank in seen]
    if len(set(map(tuple, on_gpus))) < len(seen):
        return (
            "your code seeds only the CPU's generator, but on GPUs, dropout uses the GPU's generator: torch.manual_seed"
            " seeds the generators of all devices"
        )
    return None


def _twins(drawn):
    """Return two ranks that draw the same numbers, or None."""
    return next(([drawn.index(numbers), rank] for rank, numbers in enumerate(drawn) if numbers in drawn[:rank]), None)


def by_the_seed(seen, case, expected):
    if any(of_rank["first"] != of_rank["again"] for of_rank in seen):
        return "with the same seed, the random numbers differ each time, so a run cannot be repeated"
    both = [rank for rank, of_rank in enumerate(seen) if of_rank["first"] == of_rank["second"]]
    if both:
        return f"on rank {both[0]}, the random numbers do not depend on `seed`: another --seed changes nothing"
    for first, second, again in (of_rank["gpus"] for of_rank in seen):
        if first != again:
            return "on GPUs, the random numbers differ each time with the same seed, so a run cannot be repeated"
        if first and first == second:
            return "on GPUs, the random numbers do not depend on `seed`: another --seed changes nothing"
    return None


def _four(inside, kind):
    return {"ranks": 4, "kind": kind, "nodes": 2, "ranks_of_a_node": 2, "inside": inside}


LAYOUT = {"ranks": 4, "layout": [[0, 1], [2, 3]], "names": ["data", "tensor"]}
OTHER = LAYOUT | {"names": ["tensor", "data"]}
GROUPS = "the ranks form the two groups of a mesh"
SAME = "ranks that share a model have the same images"
OWN = "each rank draws different random numbers"
CHECKS = (
    Check(
        "mesh",
        f"{PROBES}mesh",
        (
            _four("tensor", "cpu"),
            _four("data", "cuda"),
            {"ranks": 2, "kind": "cpu", "nodes": 2, "ranks_of_a_node": 1, "inside": "tensor"},
        ),
        (
            Criterion(
                "groups_mesh",
                GROUPS,
                2,
                two_groups,
                "The shape is (nodes, ranks_of_a_node), and the second name is `inside`.",
            ),
        ),
        observed=lambda case: {"data": [int], "tensor": [int]},
    ),
    Check(
        "sampler",
        f"{PROBES}sampler",
        (LAYOUT | {"images": 41}, OTHER | {"images": 40}, LAYOUT | {"layout": [[0, 1, 2, 3]], "images": 40}),
        (
            Criterion(
                "same_images_where_shared",
                SAME,
                1,
                same_images,
                'The part is the rank in the dimension "data": mesh.get_local_rank("data").',
                needs="other_images_elsewhere",
            ),
            Criterion(
                "other_images_elsewhere",
                "ranks that share no model have different images",
                1,
                lambda *all: other_images(*all) or at_random(*all),
                'The number of parts is the size of the dimension "data".',
                needs="same_images_where_shared",
            ),
        ),
        observed=lambda case: {"images": [int], "next": [int], "other": [int]},
    ),
    Check(
        "replica",
        f"{PROBES}replica",
        (LAYOUT, OTHER),
        (
            Criterion(
                "means_over_ranks_same_part",
                "gradients are averaged over the ranks with the same part",
                2,
                means_of_the_same_part,
                'process_group=mesh.get_group("data").',
            ),
        ),
        f"{ORACLES}replica",
        observed=lambda case: {"parameters": Array((None,)), "gradients": Array((None,))},
    ),
    Check(
        "dropout",
        f"{PROBES}dropout",
        ({"ranks": 4},),
        (
            Criterion(
                "own_random_numbers", OWN, 1, of_its_own, "Add the rank to a multiple of `seed`, such as 1000 * seed."
            ),
            Criterion(
                "follow_seed",
                "random numbers depend on the seed",
                1,
                by_the_seed,
                "Compute the number from `seed` and the rank.",
                needs="own_random_numbers",
            ),
        ),
        observed=lambda case: (
            dict.fromkeys(("first", "second", "again", "zero"), (float,) * 4)
            | {"many": ((float,) * 4,) * MANY, "untouched": bool, "gpus": ([int],) * 3}
        ),
    ),
)
