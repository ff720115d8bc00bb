"""The stand-in for PyTorch's compiler in notebooks' processes: the same parameters to the last bit, the same operators,
and the real one on demand."""

import json
import os
import sys
from pathlib import Path

import pytest
from environments import QUICK_START
from waiting import run_to_end

STEPS = """
import hashlib, json, sys, tempfile
import torch, torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from handson.pytorch.model import ConvNet

dist.init_process_group("gloo", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1)
images, labels = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(1)), torch.arange(8)

def trained(optimizer_of, wrap=lambda model: model):
    torch.manual_seed(0)
    model = wrap(ConvNet(10))
    optimizer = optimizer_of(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return hashlib.sha256(b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())).hexdigest()

optim, found = torch.optim, {}
for name in ("Adam", "AdamW", "Adagrad", "RMSprop"):
    found[name] = trained(lambda parameters: getattr(optim, name)(parameters, lr=0.01))
with torch.profiler.profile() as profile:
    found["SGD"] = trained(lambda parameters: optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4))
found["operators"] = [event.name for event in profile.events()]
found["DDP"] = trained(lambda parameters: optim.SGD(parameters, lr=0.1), DistributedDataParallel)
from torch.distributed.optim import ZeroRedundancyOptimizer  # which brings the operators of shapes
found["ZeRO"] = trained(lambda parameters: ZeroRedundancyOptimizer(parameters, optim.Adam, lr=0.01))
found["imported"] = "torch._dynamo.eval_frame" in sys.modules
"""
ON_DEMAND = """
found["compiled"] = torch.compile(lambda number: number + 1, backend="eager")(torch.ones(1)).item()
import torch._dynamo.testing  # which nothing above imports
counter = torch._dynamo.testing.CompileCounter()
found["of_counter"] = torch.compile(lambda number: number + 2, backend=counter)(torch.ones(1)).item()
found["graphs"] = counter.frame_count
found["stand_ins"] = [name for name, module in sys.modules.items() if isinstance(module, no_compiler.StandIn)]
"""

pytestmark = pytest.mark.thorough


def run(code, place):
    """What the code finds in a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(place), str(place.parent)])}
    done = run_to_end([sys.executable, "-c", f"{code}\nprint(json.dumps(found))"], env=environment, timeout=500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_whatever_begins_with_quick_start_has_it_and_finds_nothing_else_of_the_tests():
    code = "import importlib.util, sys; print('no_compiler' in sys.modules, importlib.util.find_spec('environments'))"
    done = run_to_end([sys.executable, "-c", code], env=os.environ | QUICK_START)
    assert (done.stdout, done.stderr) == ("True None\n", "")


def test_steps_are_the_same_to_the_last_bit_and_the_compiler_comes_when_it_is_asked_for():
    tests = Path(__file__).parent
    with_it, without = run(f"import no_compiler{STEPS}{ON_DEMAND}", tests), run(STEPS, tests)
    assert (with_it.pop("imported"), without.pop("imported")) == (False, True)
    assert [with_it.pop(name) for name in ("compiled", "of_counter", "graphs", "stand_ins")] == [2.0, 3.0, 1, []]
    assert len(with_it["operators"]) > 100 and with_it == without
