"""The identity of a training run: unit, script and track. Options and results get them from here; no list of them
exists."""

import os
import re
import sys
from pathlib import Path

SOFTWARE = {  # track -> the package whose version a result names
    "pytorch": "torch",
    "chainer": "chainer",
    "tensorflow": "keras",
    "lightning": "lightning",
    "accelerate": "accelerate",
    "jax": "jax",
}
# track -> the networks that its scripts train_cifar... can train; Chainer has no ResNet-18
MODELS = dict.fromkeys(("pytorch", "lightning", "accelerate"), ("convnet", "resnet18", "resnet50"))
MODELS |= {"chainer": ("convnet", "resnet50"), "tensorflow": ("convnet", "resnet50"), "jax": ("convnet",)}
# the lecture's training; the unit whose scripts, train_cifar_SYSTEM, do it in other systems
LECTURE, OTHER_SYSTEMS = "train_cifar", "frameworks"


def of(program):
    """Return (unit, script, track) of the training script `program`, the path NN_unit/track/script.py.

    If the script is elsewhere, its unit is "", and its track is that of the software that it has imported.
    """
    path = Path(os.path.abspath(program))
    track, topic = path.parent.name, re.fullmatch(r"\d\d_(\w+)", path.parent.parent.name)
    if topic and track in SOFTWARE:
        return topic[1], path.stem, track
    return "", path.stem, "chainer" if "handson.chainer" in sys.modules else "pytorch"


def offers_models(unit, script):
    """Return whether a script has the option --model; the course's scripts that train another network do not."""
    return not unit or script.startswith(LECTURE)


def training(unit, script):
    """Return what a script trains, independent of its unit: "train_cifar" for the script train_cifar_multi_gpu of the
    unit multi_gpu."""
    if unit == OTHER_SYSTEMS and script.startswith(f"{LECTURE}_"):
        return LECTURE
    return script.removesuffix(f"_{unit}") if unit else script


def name(unit, script):
    """Return the name of a run in tables and folders: its unit, if the script is named after it, otherwise the
    script."""
    if training(unit, script) == script:
        return script
    return script.removeprefix(f"{LECTURE}_") if unit == OTHER_SYSTEMS else unit
