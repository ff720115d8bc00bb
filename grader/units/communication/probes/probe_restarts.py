"""The probe of train_restarts.py: several ranks train a small network, stop, restore their state with the student's
code, and resume."""

import io

import torch
import torch.distributed as dist

from grader.probes.gap_code import GapCode
from grader.probes.pytorch_scripts import batch, flat, join, network
from grader.sandbox.rank import StudentMistake
from handson.pytorch.streams import Partition
from handson.words import a_kind

BUCKETS = 2  # each has a residual
PARTS = {"shared": ("model", "optimizer", "batches"), "own": ("residuals", "random")}


class Run:
    """The training of one rank: batches of numbered samples with noise, one bit per gradient, error feedback and
    momentum."""

    def __init__(self, case, rank):
        self.case, self.rank, ranks = case, rank, case["ranks"]
        self.model, self.residuals = network(case["seed"] % 1000), {}
        self.optimizer = torch.optim.SGD(self.model.parameters(), case["lr"], momentum=0.9)
        self.batches = Partition(case["samples"], case["batchsize"] * ranks, ranks, rank, case["seed"] % 1000)
        self.begin_random()

    def begin_random(self):
        torch.manual_seed(self.case["seed"] % 1000 + 1 + self.rank)

    def sent(self):
        """Return the message of this rank in the next step, one tensor of -scale and scale. The residual is the part
        that is not sent."""
        case = self.case
        left = case["samples"] - self.batches.position
        size = case["batchsize"] * case["ranks"]
        numbers = self.batches.take(-(-left // -(-left // size)), case["ranks"], self.rank)
        images, labels = batch(case["seed"], 0, [case["samples"]], 0)
        self.optimizer.zero_grad()
        outputs = self.model(images[numbers] + case["noise"] * torch.randn(len(numbers), 1, 2, 2, dtype=torch.float64))
        (
            torch.nn.functional.cross_entropy(outputs, labels[numbers], reduction="sum")
            * case["ranks"]
            / self.batches.total
        ).backward()
        gradients = torch.from_numpy(flat(parameter.grad for parameter in self.model.parameters()))
        owed = torch.cat(
            [part + self.residuals.get(bucket, 0) for bucket, part in enumerate(gradients.tensor_split(BUCKETS))]
        )
        scale = owed.abs().mean()
        sent = torch.where(owed >= 0, scale, -scale)
        self.residuals.update((bucket, part.clone()) for bucket, part in enumerate((owed - sent).tensor_split(BUCKETS)))
        return sent

    def update(self, mean):
        begin = 0
        for parameter in self.model.parameters():
            parameter.grad = mean[begin : begin + parameter.numel()].view_as(parameter).clone()
            begin += parameter.numel()
        self.optimizer.step()

    def steps(self, count):
        """Run steps together with the other ranks' processes."""
        for _ in range(count):
            mean = self.sent() / self.case["ranks"]
            dist.all_reduce(mean)
            self.update(mean)

    def parts(self):
        return {"model": self.model, "optimizer": self.optimizer, "batches": self.batches}

    def state(self):
        """Return (shared, own), as in train_restarts.py."""
        return {name: part.state_dict() for name, part in self.parts().items()}, {
            "residuals": self.residuals,
            "random": torch.get_rng_state(),
        }

    def restore(self, shared, own):
        for name, part in self.parts().items():
            part.load_state_dict(shared[name])
        self.residuals |= own["residuals"]
        torch.random.set_rng_state(own["random"])

    def given(self):
        return self.parts() | {"residuals": self.residuals}


def restart(rank, ranks, source, case):
    """Return the final parameters of a run that has stopped after case["stop"] steps, and was saved or restored by the
    student's code."""
    join(rank, ranks)
    run = Run(case, rank)
    run.steps(case["stop"])
    student = GapCode(source)
    shared, own = run.state()
    if source["gap"] == "state":
        residuals = {bucket: residual.clone() for bucket, residual in run.residuals.items()}
        names = student.run(**run.given())
        if residuals.keys() != run.residuals.keys() or not all(
            torch.equal(residuals[bucket], run.residuals[bucket]) for bucket in residuals
        ):
            raise StudentMistake(
                "your code changes `residuals`, but training continues after a checkpoint and needs them"
            )
        shared, own = names.shared, names.own
        for name, part in (("shared", shared), ("own", own)):
            if not isinstance(part, dict):
                raise StudentMistake(f"`{name}` should be a dictionary, but it is {a_kind(part)}")
            if missing := [key for key in PARTS[name] if key not in part]:
                why = (
                    "this state differs from rank to rank, and the file holds only the `shared` of rank 0"
                    if name == "own"
                    else "without it, the run cannot resume exactly"
                )
                raise StudentMistake(f"`{name}` has no {missing[0]!r}: {why}")
        if not isinstance(own["residuals"], dict):
            raise StudentMistake(
                f"own['residuals'] is {a_kind(own['residuals'])}, from which the bucket of a residual cannot be read:"
                " store the dictionary `residuals` as it is"
            )
    box = [_through_a_file(shared)]
    dist.broadcast_object_list(box, 0)  # the file holds the `shared` of rank 0
    shared, own = box[0], _through_a_file(own)
    run = Run(case, rank)
    if source["gap"] == "restore":
        student.run(shared=shared, own=own, **run.given())
    else:
        try:
            run.restore(shared, own)
        except Exception as error:  # a student's state may hold anything
            raise StudentMistake(f"the state can't be restored ({type(error).__name__}: {str(error)[:100]})") from error
    run.steps(case["steps"] - case["stop"])
    return {"parameters": flat(run.model.parameters())}


def _through_a_file(part):
    """Return a dictionary as it is after it was written into a checkpoint and read again."""
    file = io.BytesIO()
    try:
        torch.save(part, file)
        file.seek(0)
        return torch.load(file, weights_only=True)
    except Exception as error:
        raise StudentMistake(
            f"the state can't be read from a file ({type(error).__name__}): store only state_dict()s, tensors and"
            " numbers"
        ) from error
