"""More workers than cores: ranks that sleep and all-reduce leave the result of a run, from which a prediction can be
made."""

import os
import sys
import sysconfig

import pytest
from test_predict import a_run
from waiting import run_to_end

from handson.scaling import measured_runs, model

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("options", [["--double-buffering", "--dtype", "float16"], ["--overlap"]], ids=" ".join)
def test_a_rehearsal_leaves_a_run_to_predict_from(tmp_path, options):
    one = a_run(tmp_path, 1)
    command = [
        *"mpiexec -n 2".split(),
        sys.executable,
        *"-m handson rehearse".split(),
        one,
        *"--steps 6 --parameters 7000000 -o".split(),
        tmp_path / "two",
        *options,
    ]
    environment = os.environ | {"PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"}
    done = run_to_end(list(map(str, command)), env=environment, timeout=500)
    assert done.returncode == 0 and "2 workers that sleep" in done.stdout, done.stderr
    found, _, _ = measured_runs.read([one, tmp_path / "two"])
    run = found[1]
    assert (run.workers, run.parameters, len(run.steps), run.result.images) == (2, 7_000_000, 6, 2 * 6 * 32)
    assert (run.dtype, run.double_buffering) == (("float16", True) if "float16" in options else ("float32", False))
    assert run.step > min(found[0].steps), "the ranks slept"
    found[0].parameters = run.parameters
    assert len(model.fit(found).overhead) == model.DRAWS
