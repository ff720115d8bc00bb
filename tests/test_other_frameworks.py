"""What notebook 07_frameworks says of runs in other systems: each row names its system, the speed-up is that of what is
compiled and warm, and what is not known is not said."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from made_results import result

from handson.files import COURSE
from handson.notebook import other_frameworks
from handson.profiling import usage
from handson.training.results import write


def a_run(track, name, workers, first, epoch, **changes):
    """A run of two epochs of so many seconds, before which the first step takes `first` seconds."""
    log = [
        {"epoch": 1, "first_step": first, "training_time": first + epoch},
        {"epoch": 2, "training_time": first + 2 * epoch},
    ]
    unit = "multi_gpu" if name == "multi_gpu" else "frameworks"
    changes |= {"unit": unit, "script": f"train_cifar_{name}", "track": track, "workers": workers, "log": log}
    seconds = first + 2 * epoch
    return result(**{"epochs": 2, "images": 3000, "seconds": seconds, "train_seconds": seconds} | changes)


SLOW_COMPILER = [a_run("jax", "shard_map", 1, 37, 5), a_run("jax", "multi_process", 2, 16, 6)]
TORCH = [
    a_run("pytorch", name, workers, 0, 5 / workers) for name in ("multi_gpu", "data_parallel") for workers in (1, 2)
]
DISTURBED = {
    "begin": 0.0,
    "interval": 1.0,
    "devices": [],
    "nodes": [{"name": "node1", "cores": 2, "seconds": 10.0, "used": 10.0, "others": 8.0}],
}


def test_a_shorter_first_step_is_no_speed_up_and_stands_beside_it(tmp_path):
    one, two = other_frameworks.rows(SLOW_COMPILER)
    assert (one.rate, two.rate) == (300, 250) and two.speedup == pytest.approx(250 / 300)
    assert (one.first, two.first) == (37, 16)
    alt = other_frameworks.picture(SLOW_COMPILER).alt
    assert "JAX, several processes, 2 workers 250 images/s, speed-up 0.83, first step 16.0 s" in alt


def test_a_speed_up_that_cannot_be_is_questioned(tmp_path):
    slowed = [a_run("lightning", "lightning", 1, 0, 30), a_run("lightning", "lightning", 2, 0, 5)]
    assert any("6.00, is more than 2 workers can give" in line for line in other_frameworks.table(slowed, tmp_path))
    assert not any("can give" in line for line in other_frameworks.table(TORCH, tmp_path))


def test_ddp_and_data_parallel_are_rows_of_these_names():
    assert [row.name for row in other_frameworks.rows(TORCH)] == [
        f"{system}, {workers}"
        for system in ("DDP, of 02_multi_gpu", "DataParallel")
        for workers in ("1 worker", "2 workers")
    ]


def test_runs_of_ddp_in_the_unit_before_are_found_where_their_conditions_are_the_same(tmp_path):
    for number, run in enumerate([*TORCH, replace(TORCH[0], size=32)]):
        write(run, tmp_path / f"{run.unit}/results/{number}")
    assert sorted(run.name for run in other_frameworks.found(tmp_path)) == ["data_parallel"] * 2 + ["multi_gpu"] * 2


def test_lines_that_differ_from_a_script_with_gaps_are_not_counted(tmp_path):
    for unit in ("01_single_gpu", "02_multi_gpu", "07_frameworks"):
        shutil.copytree(COURSE / "solutions" / unit, tmp_path / unit, ignore=shutil.ignore_patterns("results"))
    ddp = other_frameworks.SYSTEMS["pytorch", "multi_gpu"]
    assert " of " in other_frameworks.differing(tmp_path, ddp.files, ddp.single)
    script = tmp_path / other_frameworks.PYTORCH
    script.write_text(script.read_text() + "\nraise NotImplementedError('PUT YOUR CODE')\n")
    assert other_frameworks.differing(tmp_path, ddp.files, ddp.single) == "-"
    assert any("has gaps" in line for line in other_frameworks.table(TORCH, tmp_path))


def test_a_script_with_gaps_is_left_out_by_name(tmp_path, capsys):
    script = tmp_path / other_frameworks.DDP
    script.parent.mkdir(parents=True)
    (tmp_path / "07_frameworks").mkdir()
    script.write_text("raise NotImplementedError('PUT YOUR CODE: step')")
    assert not other_frameworks.ready(tmp_path / "07_frameworks", f"../{other_frameworks.DDP}")
    assert "02_multi_gpu/pytorch/train_cifar_multi_gpu.py has gaps" in capsys.readouterr().out


def test_a_disturbed_run_is_named_in_the_table_and_the_picture(tmp_path):
    runs = [TORCH[0], replace(TORCH[1], usage=DISTURBED)]
    lines = other_frameworks.table(runs, tmp_path)
    assert any("2 (disturbed)" in line for line in lines) and any("40 % of the cores" in line for line in lines)
    assert "In 1 of 2 runs, other programs took 40 % of the cores of node1" in other_frameworks.picture(runs).alt


def test_the_measurement_of_threads_shows_how_much_is_done(monkeypatch):
    program = "import json\nfor line in (0.25, 0.5, {'tiny': 1}): print(json.dumps(line), flush=True)"
    started, shown = subprocess.Popen, []
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **options: started([sys.executable, "-c", program], **options)
    )
    monkeypatch.setattr(other_frameworks, "progress_bar", lambda what: usage.contextlib.nullcontext(shown.append))
    assert other_frameworks.measured.__wrapped__(1) == {"tiny": 1} and shown == [0.25, 0.5]
    program = json.dumps("no answer")
    with pytest.raises(other_frameworks.MeasurementFailed, match="took longer than"):
        other_frameworks.measured.__wrapped__(1)
