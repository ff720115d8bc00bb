"""The checks of pipelines, in both tracks. They judge a stage by the messages that it sends and by its gradients after
the step."""

from grader.checks import criteria, sgd
from grader.checks.check import Check, Criterion
from grader.checks.forms import Array
from grader.units.model_parallel.stage_sizes import IMAGES, WIDTH
from handson.words import counted

PROBES, ORACLES = (
    "grader.units.model_parallel.probes.probe_pipeline",
    "grader.units.model_parallel.oracles.oracle_pipeline",
)
OF_CHAINER = "grader.units.model_parallel.probes.probe_chainer_pipeline"


def divided(seen, case, expected):
    for (layers, stages), found in zip(case["sizes"], seen[0]["layers"]):
        where = f"{layers} layers on {stages} stages: {found}"
        together = [number for one in found for number in one]
        if missing := sorted(set(range(layers)) - set(together)):
            return f"{where}; layer {missing[0]} is on no stage"
        if strange := sorted(set(together) - set(range(layers))):
            return f"{where}; layer {strange[0]} does not exist: layers are numbered from 0 to {layers - 1}"
        if len(together) > layers:
            return (
                f"{where}; layer {next(number for number in together if together.count(number) > 1)} is on more than"
                " one stage"
            )
        if together != list(range(layers)):
            return f"{where}; stage 0 should have the first layers in their order, and stage 1 the layers after them"
    return None


def evenly(seen, case, expected):
    for (layers, stages), found in zip(case["sizes"], seen[0]["layers"]):
        counts = [len(one) for one in found]
        if max(counts) - min(counts) > 1:
            return (
                f"{layers} layers on {stages} stages: the stages have {', '.join(map(str, counts))} layers; these"
                " numbers should differ by one at most: the stage with most layers determines the time of the step"
            )
    return None


def _stages(seen, case, expected):
    """Return (stage, observation, expectation) of each stage: stages were ranks, or they ran one after the other."""
    return zip(range(case["stages"]), seen[0].get("stages", seen), expected)


def _messages(found, kind):
    """Return (micro-batch, rank, numbers) of each message that a stage sent in operations of this kind."""
    return [
        (int(name[1:]), to, numbers) for (name, to), numbers in zip(found["sent"], found["numbers"]) if name[0] == kind
    ]


def _right_messages(found, stage, case, right, kind, what, to):
    """Return what is wrong with the messages that a stage sends in its forwards or backwards, as a sentence; or None.
    right: the right numbers of each micro-batch."""
    messages = _messages(found, kind)
    if not 0 <= to < case["stages"]:
        return (
            f"stage {stage} of {case['stages']} sends a message in {kind}{messages[0][0]}, but it is the"
            f" {'last' if kind == 'F' else 'first'} stage: no stage needs the message"
            if messages
            else None
        )
    elsewhere = {number: rank for number, rank, _ in messages if rank != to}
    for number, _, numbers in messages:
        if number in elsewhere:
            return (
                f"stage {stage} sends {what} of micro-batch {number} to stage {elsewhere[number]}; stage {to} needs"
                f" {'it' if kind == 'B' else 'them'}"
            )
        if not criteria.close(numbers, right[number]):
            scaled = next(
                (
                    f": {name}"
                    for name, values in _mixed(right, number, kind).items()
                    if criteria.close(numbers, values)
                ),
                "",
            )
            return f"the message of stage {stage} in {kind}{number} is not {what} of micro-batch {number}{scaled}"
    for number in range(case["micro_batches"]):
        if (times := sum(one == number for one, *_ in messages)) != 1:
            return (
                f"stage {stage} sends {counted(times, 'message')} with {what} of micro-batch {number}, but stage {to}"
                " waits for one"
            )
    return None


def _mixed(right, number, kind):
    why = {"F": "only the last stage divides, and only its loss", "B": "the last stage has divided its loss already"}
    others = {f"the message is that of micro-batch {other}": one for other, one in enumerate(right) if other != number}
    return others | {
        "the message is multiplied by the number of micro-batches": len(right) * right[number],
        f"the message is divided by the number of micro-batches, but {why[kind]}": right[number] / len(right),
    }


def outputs_travel(seen, case, expected):
    for stage, found, right in _stages(seen, case, expected):
        done = [int(name[1:]) for name in case["operations"][stage] if name[0] == "F"]
        if len(found["inputs"]) != len(done):
            return (
                f"stage {stage} calls its network {counted(len(found['inputs']), 'time')} in"
                f" {counted(len(done), 'forward')}; it should call"
                " it once in each forward"
            )
        for number, inputs in zip(done, found["inputs"]):
            if not criteria.close(inputs, right["inputs"][number]):
                whose = "the images" if stage == 0 else f"the outputs of stage {stage - 1}"
                return f"in F{number}, the network of stage {stage} does not receive {whose} for micro-batch {number}"
        if problem := _right_messages(found, stage, case, right["outputs"], "F", "the outputs", stage + 1):
            return problem
    return None


def as_the_whole_batch(seen, case, expected):
    for stage, found, right in _stages(seen, case, expected):
        if not criteria.close(found["gradients"], right["gradients"]["right"]):
            sentence = criteria.explained_by(found["gradients"], right["gradients"])
            if not sentence and (times := sgd.ratio(found["gradients"], right["gradients"]["right"])):
                sentence = criteria.as_large(times)
            return criteria.with_reason(
                f"on stage {stage}, the gradients after the step are not those of the whole batch", sentence
            )
        if not criteria.close(found["loss"], right["loss"]):
            loss, mean = criteria.distinct_digits(found["loss"], right["loss"])
            return f"the step returns the loss {loss}, but the mean over the batch is {mean}"
    return None


def gradients_travel(seen, case, expected):
    for stage, found, right in _stages(seen, case, expected):
        if problem := _right_messages(
            found, stage, case, right["before"], "B", "the gradient of the inputs", stage - 1
        ):
            return problem
    return None


def gradients_of_all(seen, case, expected):
    travel = gradients_travel(seen, case, expected) or _tags(seen, case, "B")
    return as_the_whole_batch(seen, case, expected) or travel


def outputs_with_tags(seen, case, expected):
    return outputs_travel(seen, case, expected) or _tags(seen, case, "F")


def _tags(seen, case, kind):
    """Return which of Chainer's messages has a tag that its receiver does not wait for, as a sentence; or None."""
    step = 1 if kind == "F" else -1
    for stage, found in enumerate(seen[0]["stages"]):
        if not 0 <= stage + step < case["stages"]:
            continue
        waits = dict(seen[0]["stages"][stage + step]["received_tags"])
        for name, tag in found["sent_tags"]:
            if name[0] == kind and waits.get(name, tag) != tag:
                return (
                    f"stage {stage} sends its message of {name} with tag {tag}, but stage {stage + step} waits for tag"
                    f" {waits[name]}: the stages would deadlock"
                )
    return None


def let_go(seen, case, expected):
    """Judge that a stage releases the activations after their backward. A local name of the gap may keep those of the
    last backward until the next one."""
    for stage, found in enumerate(seen[0]["stages"]):
        names = case["operations"][stage]
        if len(found["inputs"]) > (forwards := sum(name[0] == "F" for name in names)):
            return (
                f"stage {stage} runs {len(found['inputs'])} forwards for {forwards} micro-batches: backward should"
                " start from the outputs in self.held, without another forward"
            )
        for name, held in found["held"]:
            done = names[: names.index(name)]
            holds = sum(1 if one[0] == "F" else -1 for one in done)
            if held > holds + 1:
                waits = f"{holds} of them still {'needs' if holds == 1 else 'need'} a backward"
                return (
                    f"before {name}, stage {stage} holds the activations of {held} micro-batches, but only {waits}:"
                    " remove the others from self.held"
                )
    return None


def of_the_right_kind(seen, case, expected):
    right = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B"}[case["name"]]
    for of_rank in seen:
        if of_rank["kind"] != right:
            return f"for {case['name']!r}, `schedule` should be a {right}, not a {of_rank['kind']}"
    return None


def _step(case):
    of_stage = {
        "loss": float,
        "gradients": Array((None,)),
        "inputs": [Array((IMAGES, None))],
        "sent": [(str, int)],
        "numbers": [Array((IMAGES, WIDTH))],
        "held": [(str, int)],
    }
    return {"stages": (of_stage,) * case["stages"]}


def _step_of_chainer(case):
    return {
        "stages": tuple(of | {"sent_tags": [(str, int)], "received_tags": [(str, int)]} for of in _step(case)["stages"])
    }


ALTERNATING = {
    "stages": 2,
    "micro_batches": 3,
    "operations": [["F0", "F1", "B0", "F2", "B1", "B2"], ["F0", "B0", "F1", "B1", "F2", "B2"]],
}
WHOLE = {"stages": 3, "micro_batches": 1, "operations": [["F0", "B0"]] * 3}
GPIPE = {"stages": 3, "micro_batches": 2, "operations": [["F0", "F1", "B0", "B1"]] * 3}
BACKWARDS = {"stages": 3, "micro_batches": 2, "operations": [["F1", "F0", "B0", "B1"]] * 3}
ALL = "the gradients are those of the whole batch"
SENT_ON = "each stage receives its inputs and sends its outputs"
CHECKS = {
    "pytorch/pipeline.py": (
        Check(
            "my_layers",
            f"{PROBES}:my_layers",
            ({"sizes": [[6, 2], [6, 4], [7, 3], [5, 5], [3, 1]]},),
            (
                Criterion(
                    "each_layer_once",
                    "each layer is on exactly one stage",
                    2,
                    divided,
                    "Stage s + 1 starts at the end of stage s, and the last stage ends at `layers`.",
                ),
                Criterion(
                    "equal_stages",
                    "stages have nearly equal numbers of layers",
                    1,
                    evenly,
                    "Start at stage * layers // stages.",
                    needs="each_layer_once",
                ),
            ),
            observed=lambda case: {"layers": tuple(([int],) * stages for _, stages in case["sizes"])},
        ),
        Check(
            "forward",
            f"{PROBES}:step",
            (ALTERNATING, BACKWARDS),
            (
                Criterion(
                    "inputs_and_outputs",
                    SENT_ON,
                    2,
                    outputs_travel,
                    "The inputs are self.images[number] on the first stage, and `arrived` on the other stages.",
                ),
                Criterion(
                    "gradients_of_whole_batch",
                    ALL,
                    2,
                    lambda *all: as_the_whole_batch(*all) or let_go(*all),
                    "Backward starts from the outputs that you hold: keep their graph. On the last stage, divide the"
                    " loss by the number of micro-batches.",
                ),
            ),
            f"{ORACLES}:step",
            observed=_step,
        ),
        Check(
            "backward",
            f"{PROBES}:step",
            (ALTERNATING, BACKWARDS),
            (
                Criterion(
                    "gradients_of_whole_batch",
                    ALL,
                    2,
                    as_the_whole_batch,
                    "outputs.backward(gradient); on the last stage, `gradient` is None and the outputs are the loss.",
                ),
                Criterion(
                    "gradient_sent_back",
                    "the stage before receives its gradient",
                    2,
                    gradients_travel,
                    "After backward, inputs.grad is the gradient of the inputs.",
                ),
                Criterion(
                    "activations_released",
                    "a stage releases activations after their backward",
                    1,
                    let_go,
                    "self.held.pop(number) returns the pair and removes it.",
                    needs="gradients_of_whole_batch",
                ),
            ),
            f"{ORACLES}:step",
            observed=_step,
        ),
    ),
    "chainer/chain_list.py": (
        Check(
            "chain_list",
            f"{OF_CHAINER}:chain_list",
            (WHOLE, WHOLE | {"stages": 1, "operations": [["F0", "B0"]]}),
            (
                Criterion(
                    "inputs_and_outputs",
                    SENT_ON,
                    2,
                    outputs_with_tags,
                    "rank_in is the rank before, None on rank 0; rank_out is the next rank, None on the last rank.",
                ),
                Criterion(
                    "gradients_of_whole_batch",
                    ALL,
                    1,
                    gradients_of_all,
                    "Call add_link once, with `part`, rank_in and rank_out.",
                    needs="inputs_and_outputs",
                ),
            ),
            f"{ORACLES}:step",
            observed=_step_of_chainer,
        ),
        Check(
            "micro_batch",
            f"{OF_CHAINER}:micro_batch",
            (GPIPE, GPIPE | {"stages": 1, "operations": GPIPE["operations"][:1]}),
            (
                Criterion(
                    "inputs_and_outputs",
                    SENT_ON,
                    2,
                    outputs_with_tags,
                    "recv(comm, comm.rank - 1), then part(inputs), then send(outputs, comm, comm.rank + 1).",
                ),
                Criterion(
                    "gradients_of_whole_batch",
                    ALL,
                    2,
                    gradients_of_all,
                    "Backward starts from the result of `send`, or from the loss / number of micro-batches.",
                ),
            ),
            f"{ORACLES}:step",
            observed=_step_of_chainer,
        ),
    ),
    "pytorch/torch_pipeline.py": (
        Check(
            "torch_schedule",
            f"{PROBES}:torch_schedule",
            tuple({"ranks": 2, "stages": 2, "name": name, "micro_batches": 3} for name in ("gpipe", "1f1b")),
            (
                Criterion(
                    "gradients_of_whole_batch",
                    ALL,
                    2,
                    as_the_whole_batch,
                    "ScheduleGPipe(stage, n_microbatches=..., loss_fn=...)",
                ),
                Criterion(
                    "right_schedule",
                    "`schedule` is the schedule `name`",
                    1,
                    of_the_right_kind,
                    "Use ScheduleGPipe for gpipe, and Schedule1F1B for 1f1b.",
                    needs="gradients_of_whole_batch",
                ),
            ),
            f"{ORACLES}:whole",
            observed=lambda case: {"loss": float, "gradients": Array((None,)), "kind": str},
        ),
    ),
}
