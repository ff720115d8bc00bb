"""Probes of train_cntk.py: they run its functions on real ranks, with images in files, and note the images on which the
network is trained."""

import contextlib
import itertools
from pathlib import Path
from unittest import mock

import numpy
import torch
from PIL import Image

from grader.probes.gloo_for_chainermn import Group
from grader.probes.gap_code import GapCode
from grader.probes.pytorch_scripts import Network, flat, join, network
from grader.probes.script import options_of
from grader.sandbox.rank import StudentMistake
from grader.units.communication.communication_numbers import CLASSES, pixels
from handson import cntk
from handson.cntk import workers
from handson.cntk.distributed import DistributedLearner
from handson.cntk.learners import Learner
from handson.errors import OneSentence
from handson.words import a_kind

sessions = itertools.count()  # equal on all ranks
SCRIPT = "05_communication/pytorch/train_cntk.py"
CRITERION = cntk.cross_entropy_with_softmax, cntk.classification_error


class PixelNet(Network):
    """A network whose input are pixels from 0 to 255."""

    def forward(self, images):
        return super().forward(images.double() / 255)


@contextlib.contextmanager
def together(rank, ranks, case, *more):
    """Context manager: the workers of handson.cntk are the ranks of this check. It yields a folder with train.txt;
    "test" in `more` adds test.txt."""
    join(rank, ranks)
    # an earlier case may have written it
    folder = Path(f"images_{rank}_{case['seed']}_{case['samples']}_{case.get('classes')}")
    folder.mkdir(exist_ok=True)
    for part in (part for part in ("train", *more) if not (folder / f"{part}.txt").exists()):
        images, labels = pixels(case, part)
        for number, image in enumerate(images):
            Image.fromarray(image).save(folder / f"{part}{number}.png")
        (folder / f"{part}.txt").write_text(
            "".join(f"{part}{number}.png\t{label}\n" for number, label in enumerate(labels))
        )
    group = Group(rank, range(ranks))
    with mock.patch.object(workers, "world", lambda: group), mock.patch.object(workers, "finalize", lambda: None):
        try:
            yield folder
        except OneSentence as problem:
            raise StudentMistake(str(problem)) from problem


def stream(path, samples, randomize=True):
    """Return the MinibatchSource of the solution."""
    streams = cntk.StreamDefs(
        features=cntk.StreamDef(field="image"), labels=cntk.StreamDef(field="label", shape=CLASSES)
    )
    return cntk.MinibatchSource(cntk.ImageDeserializer(path, streams), randomize=randomize, max_samples=samples)


def local_learner(model, case):
    return cntk.momentum_sgd(model.parameters(), case["lr"], momentum=0.9, unit_gain=False)


def source(rank, ranks, source, case):
    """Return what the student's source returns: the numbers of the images in their order, and their labels."""
    with together(rank, ranks, case) as folder:
        classes = case["classes"]
        given = {
            "map_file": folder / "train.txt",
            "classes": classes,
            "randomize": case["randomize"],
            "max_samples": case["max_samples"],
        }
        # in a run, the script's CLASSES is also the number of classes of its data
        made = GapCode(source).run(**given, CLASSES=classes).returned
        if not isinstance(made, cntk.MinibatchSource):
            raise StudentMistake(f"create_source should return a MinibatchSource, but it returns {a_kind(made)}")
        for name in ("features", "labels"):
            if not hasattr(made.streams, name):
                raise StudentMistake(
                    f"the source has no stream {name!r}; its streams are: {', '.join(vars(made.streams)) or 'none'}"
                )
        numbers, labels = [], []
        while len(numbers) <= 10 * case["samples"] and (minibatch := made.next_minibatch(case["minibatch"])):
            images, one_hot = minibatch[made.streams.features], minibatch[made.streams.labels]
            if one_hot.ndim == 2 and one_hot.shape[1] != classes:
                raise StudentMistake(
                    f"`labels` are vectors of {one_hot.shape[1]} numbers, but these data have {classes} classes: pass"
                    " shape=classes to the StreamDef of `labels`"
                )
            if images.shape[1:] != (1, 2, 2) or one_hot.shape != (len(images), classes):
                raise StudentMistake(
                    f"`features` should be images, and `labels` vectors of {classes} numbers, but their shapes are"
                    f" {tuple(images.shape)} and {tuple(one_hot.shape)}"
                )
            numbers += [int(image[0, 0, 0]) for image in images]
            labels += one_hot.argmax(dim=1).tolist()
        return {"numbers": numbers, "labels": labels}


def learner(rank, ranks, source, case):
    """Return the parameters after each minibatch with the student's learner."""
    with together(rank, ranks, case) as folder:
        model = network(case["seed"] % 1000, PixelNet)
        args = options_of(
            SCRIPT,
            ranks,
            workers.add_options,
            samples=case["samples"],
            bits=case["bits"],
            warm_up=case["warm_up"],
            block_size=case["block_size"],
            lr=case["lr"],
        )
        made = (
            GapCode(source)
            .run(local=local_learner(model, case), parameters=list(model.parameters()), args=args)
            .returned
        )
        if not isinstance(made, Learner):
            raise StudentMistake(f"create_learner should return a learner, but it returns {a_kind(made)}")
        trainer, trace, given = (
            cntk.Trainer(model, CRITERION, made),
            [],
            stream(folder / "train.txt", case["max_samples"]),
        )
        streams = {"features": given.streams.features, "labels": given.streams.labels}
        while True:
            due = (ranks, rank) if given.given >= case["warm_up"] else (1, 0)
            part = made.partitions(given.given) if isinstance(made, DistributedLearner) else due
            if part != due and part == (1, 0):
                raise StudentMistake(
                    f"distributed_after is {made.distributed_after}, but args.warm_up is {case['warm_up']}: pass"
                    " args.warm_up as it is, because both count the samples of all workers together"
                )
            if not (minibatch := given.next_minibatch(case["minibatch"], streams, *part)):
                break
            trainer.train_minibatch(minibatch)
            trace.append(flat(model.parameters()))
        return {"parameters": numpy.stack(trace)}


def loop(rank, ranks, source, case):
    """Return the numbers of the images on which this rank trains, [[int] of each step], and its final parameters."""
    with together(rank, ranks, case) as folder:
        steps, given_out = [], []  # (minibatch, steps before it)
        trainer = _noting(steps, network(case["seed"] % 1000, PixelNet), case)
        given = stream(folder / "train.txt", case["max_samples"])
        original = given.next_minibatch

        def not_left_out():
            minibatch, before = given_out[-1] if given_out else ({}, 0)
            if minibatch and len(steps) == before > 0 and not any(map(len, minibatch.values())):
                raise StudentMistake(
                    "a worker skips train_minibatch if its part of a minibatch is empty: it must call it, because the"
                    " other workers wait for it"
                )

        def counted(*arguments, **options):
            not_left_out()
            if len(given_out) > case["max_samples"]:
                raise StudentMistake("the loop does not end: stop when the source returns an empty minibatch, {}")
            given_out.append((original(*arguments, **options), len(steps)))
            return given_out[-1][0]

        given.next_minibatch = counted
        GapCode(source).run(
            trainer=trainer,
            source=given,
            minibatch_size=case["minibatch"],
            streams={"features": given.streams.features, "labels": given.streams.labels},
        )
        not_left_out()
        return {"steps": steps, "parameters": flat(trainer.model.parameters())}


def _noting(steps, model, case):
    """Return a Trainer that notes the images of each minibatch."""

    class Noting(cntk.Trainer):
        def train_minibatch(self, arguments, **options):
            steps.append([int(image[0, 0, 0]) for image in arguments.get("features", ())])
            return super().train_minibatch(arguments, **options)

    return Noting(
        model, CRITERION, cntk.data_parallel_distributed_learner(local_learner(model, case)), cntk.ProgressPrinter()
    )


def session(rank, ranks, source, case):
    """Return the findings of three runs of the student's session: two epochs; three epochs, with args.restore; two
    epochs again, without it.

    A run is {"steps": [images of each step], "parameters", "saved": samples at each checkpoint, "lines": number of
    lines of progress, "tested": images, "before the test": number of steps}.
    """
    runs = []
    with together(rank, ranks, case, "test") as folder:
        out = Path(f"out{next(sessions)}")  # without the checkpoint of an earlier case
        out.mkdir(exist_ok=True)
        for sweeps, restore in ((2, False), (3, True), (2, False)):
            steps, saved, tested, begun = [], [], [], []  # begun: number of steps before each minibatch of the test
            trainer = _noting(steps, network(case["seed"] % 1000, PixelNet), case)
            original = trainer.save_checkpoint

            def save(filename, external_state=None):
                saved.append(trainer.total_number_of_samples_seen)
                original(filename, external_state)

            trainer.save_checkpoint = save

            def test(arguments):
                tested.extend(int(image[0, 0, 0]) for image in arguments["features"])
                begun.append(len(steps))
                return 0.5

            trainer.test_minibatch = test
            train, test = (
                stream(folder / "train.txt", sweeps * case["samples"]),
                stream(folder / "test.txt", case["samples"], False),
            )
            given = {
                "trainer": trainer,
                "source": train,
                "test_source": test,
                "checkpoint": out / "model.ckpt",
                "streams": {"features": train.streams.features, "labels": train.streams.labels},
                "args": options_of(
                    SCRIPT,
                    ranks,
                    workers.add_options,
                    batchsize=case["batchsize"],
                    samples=case["samples"],
                    restore=restore,
                    out=out,
                    epoch=sweeps,
                ),
            }
            GapCode(source).run(**given)
            [printer] = trainer.progress_writers
            runs.append(
                {
                    "steps": steps,
                    "saved": saved,
                    "tested": tested,
                    "before the test": min(begun, default=len(steps)),
                    "lines": len(printer.log),
                    "parameters": flat(trainer.model.parameters()),
                }
            )
        torch.distributed.barrier()
    return {"runs": runs}
