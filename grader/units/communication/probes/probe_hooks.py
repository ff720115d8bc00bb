"""The probe of hooks.py and half_and_late.py: DistributedDataParallel calls the hooks on real ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from grader.probes.count_collectives import Collectives
from grader.probes.pytorch_scripts import flat, join
from grader.probes.script import Script
from grader.sandbox.rank import StudentMistake
from handson.words import a_kind


class Vectors(nn.Module):
    """A module whose parameters have these lengths; the loss of `gradients` has exactly these gradients."""

    def __init__(self, lengths):
        super().__init__()
        self.vectors = nn.ParameterList(torch.zeros(length) for length in lengths)

    def forward(self, gradients):
        return sum((vector * gradient).sum() for vector, gradient in zip(self.vectors, gradients))


def gradients(case, step, rank):
    """Return the gradients of a rank in a step, for each parameter.

    case["large"]: the first gradient of each rank, so large that it or a sum overflows in float16; case["zeros"]:
    whether some are 0; case["few"]: the number of gradients of each parameter that are not 0 in the hook's first step.
    """
    generator = torch.Generator().manual_seed(case["seed"] + 7919 * step + 31 * rank)
    made = [torch.randn(length, generator=generator) for length in case["lengths"]]
    for one in made:
        if case.get("large"):
            one[0] = case["large"][rank]
        if case.get("zeros"):
            one[::3] = 0
        if case.get("few") and step == 2:  # the first with the student's hook
            one[case["few"] :] = 0
    return made


class Kept(dict):
    """The state of a hook. It notes which bucket finds the entries of which bucket, and whether an entry is in the
    memory of a bucket. turn: (step, bucket) of the hook's current call."""

    def __init__(self):
        super().__init__()
        self.in_a_bucket = False
        # key -> the turn in which it was stored; bucket -> the buckets whose entries it has found
        self.turn, self.kept_in, self.found = None, {}, {}
        self.found_in = {}  # turn -> whether an entry of an earlier turn was found
        self.missed = set()  # buckets that have looked for a missing key after the first step

    def _look_up(self, key):
        found = self.found.setdefault(self.turn[1], set())
        self.found_in.setdefault(self.turn, False)
        if super().__contains__(key) and (kept_in := self.kept_in.get(key)) != self.turn:
            found.add(kept_in[1] if kept_in else self.turn[1])
            self.found_in[self.turn] = True
        elif not super().__contains__(key) and self.turn[0]:
            self.missed.add(self.turn[1])

    def __contains__(self, key):
        self._look_up(key)
        return super().__contains__(key)

    def __getitem__(self, key):
        self._look_up(key)
        return super().__getitem__(key)

    def get(self, key, *default):
        self._look_up(key)
        return super().get(key, *default)

    def pop(self, key, *default):
        self._look_up(key)
        return super().pop(key, *default)

    def setdefault(self, key, *default):
        self._look_up(key)
        if not super().__contains__(key):
            self.kept_in[key] = self.turn
        return super().setdefault(key, *default)

    def __setitem__(self, key, value):
        self.kept_in[key] = self.turn
        super().__setitem__(key, value)

    def peek(self, key):
        """Return an entry, which is not noted."""
        return super().get(key)

    def look_for(self, buffer):
        """Note whether an entry is in the memory of a bucket's `buffer`. The result of a functional collective has no
        memory of its own."""
        tensors = [
            one
            for kept in self.values()
            for one in (kept if isinstance(kept, (tuple, list)) else [kept])
            if type(one) is torch.Tensor
        ]
        self.in_a_bucket |= any(
            one.untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr() for one in tensors
        )

    def misused(self, name, steps):
        """Return a sentence on the dictionary, called `name`, if it holds a bucket's memory, if keys mix up buckets, or
        if they are never found again in `steps` steps; or ""."""
        if self.in_a_bucket:
            return (
                f"`{name}` holds the bucket's own memory, which the gradients of the next step overwrite: store a new"
                " tensor, such as `gradients + ...` or `gradients / ...`; `+=`, `add_`, `div_`, and `.to` with the same"
                " type return no new tensor"
            )
        if any(found and bucket not in found for bucket, found in self.found.items()):
            return (
                f"`{name}` has the same key for several buckets, so a bucket finds the entry of another bucket: use"
                " bucket.index() as the key"
            )
        keep = {bucket for _, bucket in self.kept_in.values()}
        never = {bucket for bucket, found in self.found.items() if steps > 1 and not found and bucket in keep}
        if never and not never & self.missed:
            return (
                f"`{name}` is written before it is read in the same step, so the entry of the previous step is never"
                " used: first read the entry of bucket.index()"
            )
        if never:
            return (
                f"`{name}` has a different key for the same bucket in each step, so a bucket never finds its entry: use"
                " bucket.index(), which is the same in all steps"
            )
        if any(not found and self.found_in.get((step - 1, bucket)) for (step, bucket), found in self.found_in.items()):
            return (
                f"`{name}` has a different key for the same bucket after a restart, so its entry is lost: use"
                " bucket.index(), which does not depend on memory"
            )
        return ""


PARTS = "owed", "scale", "positive", "places", "values"  # names that a gap with error feedback sets


def parts(names, start):
    """Return {name: numbers} of the tensors in one call of a hook with error feedback: those at its start, the names
    that the gap sets, and the residual that it has stored ("left")."""
    found = start | {name: names.get(name) for name in PARTS} | {"left": names.residuals.peek(names.index)}
    found = {name: one for name, one in found.items() if isinstance(one, torch.Tensor)}
    if {"owed", "left"} <= found.keys() and found["owed"].data_ptr() == found["left"].data_ptr():
        del found["owed"]  # the value that is sent was subtracted from it in place
    return {name: flat([one]) for name, one in found.items()}


def hook(rank, ranks, source, case):
    """Return the findings of a hook: "steps": the gradients after backward, [steps][all numbers]; "sent": [name, bytes]
    of this rank's collectives, per step; "waited": per step, whether the hook waited for a collective that it had just
    started; "forgotten": whether a collective was never waited for (with `late`, one of the previous step); "misused":
    a sentence on a mistake in the hook's state, or "";
    "types": of the hook's results; "parts": those of each call of a hook with error feedback. The last of several steps
    follows a restart, with another replica and the same state.
    """
    join(rank, ranks)
    kept = Kept()
    given = [getattr(torch, case["dtype"])] if "dtype" in case else []
    given += [case["share"]] if "share" in case else []
    state, extra = (given[0], []) if case["function"] == "half" else (kept, given)
    name_of_state = "pending" if case["function"] == "late" else "residuals"
    script = Script(source, {}, function=case["function"])
    # before: bucket -> the collectives that its hook started in the previous step
    collectives, steps, sent, at_once, forgotten, before = Collectives(), [], [], [], [], {}
    futures, types = [], set()  # the futures of the current step; the types of all steps
    start, of_calls = {}, []  # the tensors at the start of the current call; what `parts` has found

    def begin(names):
        if "residuals" in names:
            before = kept.peek(names.index)
            start.clear()
            start["gradients"] = names.gradients.clone()
            start.update({"before": before.clone()} if isinstance(before, torch.Tensor) else {})

    def see(names):
        if start:
            of_calls.append(parts(names, start))

    def registered(_, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if starting:
            return (
                dist.all_reduce(bucket.buffer().div_(ranks), async_op=True)
                .get_future()
                .then(lambda future: future.value()[0])
            )
        kept.turn = len(steps), bucket.index()
        collectives.works.clear()  # removes the work of the previous buckets
        with collectives.noted():
            future = script.run(see, state, bucket, *extra, begin=begin)
        kept.look_for(bucket.buffer())
        if not isinstance(future, torch._C.Future):
            raise StudentMistake(f"the hook should return a future of the tensor, but it returns {a_kind(future)}")
        at_once[-1] |= any(work is one for work in collectives.works for one in collectives.waited)
        due = before.get(bucket.index(), ()) if case["function"] == "late" else collectives.works
        forgotten.extend(map(collectives.is_in_flight, due))
        before[bucket.index()] = list(collectives.works)
        futures.append(future)
        return future

    def started():
        """Return a replica after two steps, because DistributedDataParallel rebuilds its buckets after the first
        step."""
        replica = DistributedDataParallel(Vectors(case["lengths"]), bucket_cap_mb=1e-5)
        replica.register_comm_hook(None, registered)
        for step in range(2):
            replica.zero_grad()
            replica(gradients(case, step, rank)).backward()
        return replica

    starting = True
    first, restarted = started(), started()
    starting = False
    for step in range(case["steps"]):
        replica = restarted if step and step == case["steps"] - 1 else first
        replica.zero_grad()
        at_once.append(False)
        try:
            replica(gradients(case, 2 + step, rank)).backward()
        except RuntimeError as error:  # tensors of two buckets don't fit together
            if problem := kept.misused(name_of_state, 0):
                raise StudentMistake(problem) from error
            raise
        types.update(map(_type_of, futures))
        futures.clear()
        steps.append(torch.cat([parameter.grad.flatten() for parameter in replica.parameters()]).double().numpy())
        sent.append(collectives.hand_over())
    if case["function"] == "late":
        for one in state.values():
            if isinstance(one, (tuple, list)):  # (tensor, work)
                if not hasattr(one[1], "wait"):
                    raise StudentMistake(
                        "an entry of `pending` should be (tensor, work), in this order, because the script waits for"
                        " the work after each epoch"
                    )
                one[1].wait()
    return {
        "steps": steps,
        "sent": sent,
        "waited": at_once,
        "forgotten": any(forgotten),
        "misused": kept.misused(name_of_state, case["steps"]),
        "parts": of_calls,
        "types": sorted(types),
    }


def _type_of(future):
    """Return the type of the tensor that a hook's future contains, such as "float32"."""
    result = future.value()
    result = result[0] if isinstance(result, (list, tuple)) and result else result
    return str(getattr(result, "dtype", "")).removeprefix("torch.")
