"""Chainer imports and runs with today's NumPy, silently, and nobody else notices."""

import os
import sys
from pathlib import Path

from waiting import run_to_end

ROOT = Path(__file__).resolve().parents[2]


def run_python(source, *options):
    """Runs ``source`` in a fresh Python in which every warning is an error; returns the finished process."""
    environment = dict(os.environ, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1")
    return run_to_end([sys.executable, "-W", "error", *options, "-c", source], env=environment, cwd="/")


def assert_silent(process):
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_chainer_and_chainermn_import_silently():
    assert_silent(run_python("import handson.chainer; import chainer, chainermn; chainer.links.Linear(2, 2)"))


CUPY = """
import sys
from unittest.mock import MagicMock
for name in ("cupy", "cupy.cuda", "cupy.cuda.nccl", "cupyx", "cupyx.scipy", "cupyx.scipy.linalg", "cupyx.scipy.special"):
    sys.modules[name] = MagicMock(__name__=name)
sys.modules["cupy._util"] = MagicMock(PerformanceWarning=Warning)
cupy = sys.modules["cupy"]
cupy.configure_mock(__version__="14.2.0", ndarray=MagicMock, memoize=lambda for_each_device: lambda function: function)
cupy.cuda, cupy.cuda.Device = sys.modules["cupy.cuda"], MagicMock
import handson.chainer
from chainermn.communicators import _memory_utility
from chainer.training.updaters import multiprocess_parallel_updater as updater
"""


def test_kernels_with_half_precision_include_its_header_which_cupy_14_does_not():
    """CuPy has a stand-in without cuDNN, and records how kernels are created."""
    assert_silent(
        run_python(
            CUPY + "_memory_utility._cupy_batched_pack_params(); updater._memcpy_scatter()\n"
            "assert '#include <cuda_fp16.h>' in cupy.RawKernel.call_args[0][0]\n"
            "assert cupy.ElementwiseKernel.call_args[1]['preamble'] == '#include <cupy/float16.cuh>\\n'"
        )
    )


def test_numpy_is_left_as_it_was():
    assert_silent(
        run_python(
            "import numpy; before = set(vars(numpy)), hasattr(numpy, 'float'), hasattr(numpy, 'sctypes')\n"
            "import handson.chainer\n"
            "after = set(vars(numpy)), hasattr(numpy, 'float'), hasattr(numpy, 'sctypes')\n"
            "new = after[0] - before[0]\n"
            "assert before[1:] == after[1:], after[1:]\n"
            "assert not new & {'float', 'sctypes', 'int', 'object'}, new"
        )
    )


def test_a_failed_import_of_chainer_before_does_no_harm():
    """What happens in a notebook: first the cell without the line, then the cell with it."""
    assert_silent(
        run_python(
            "import warnings\n"
            "with warnings.catch_warnings():\n"
            "    warnings.simplefilter('ignore')\n"
            "    try:\n"
            "        import chainer\n"
            "    except (ImportError, AttributeError):\n"
            "        pass\n"
            "import handson.chainer\n"
            "import chainer, numpy\n"
            "chainer.functions.relu(chainer.links.Linear(2, 2)(numpy.ones((1, 2), 'f')))"
        )
    )


def test_a_missing_chainer_is_named_in_one_sentence():
    process = run_python(
        "import sys; sys.modules['chainer'] = None; del sys.modules['chainer']\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'chainer':\n"
        "            raise ModuleNotFoundError(name, name='chainer')\n"
        "sys.meta_path.insert(0, Hide())\n"
        "import numpy\n"
        "try:\n"
        "    import handson.chainer\n"
        "except ImportError as error:\n"
        "    print(error)\n"
        "assert 'chainer._environment_check' not in sys.modules and not hasattr(numpy, 'sctypes')"
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("Chainer is not installed in this Python") and process.stdout.count("\n") == 1


def test_resize_images_and_its_gradient_run_on_the_cpu():
    assert_silent(
        run_python(
            "import handson.chainer, chainer, numpy\n"
            "import chainer.functions as F\n"
            "x = chainer.Variable(numpy.arange(16, dtype='f').reshape(1, 1, 4, 4))\n"
            "y = F.resize_images(x, (7, 7))\n"
            "F.sum(y).backward()\n"
            "assert numpy.allclose(y.array[0, 0, ::2, ::2], x.array[0, 0], atol=1e-4)\n"
            "assert numpy.isclose(x.grad.sum(), 49)\n"
            "assert F.resize_images(x, (8, 8), mode='nearest').array[0, 0, 7, 7] == 15"
        )
    )


def test_as_strided_and_its_gradient_run():
    assert_silent(
        run_python(
            "import handson.chainer, chainer, numpy\n"
            "import chainer.functions as F\n"
            "x = chainer.Variable(numpy.arange(4, dtype='f'))\n"
            "y = F.as_strided(x, (3, 2), (1, 1), 0)\n"
            "F.sum(y).backward()\n"
            "assert x.grad.tolist() == [1, 2, 2, 1]"
        )
    )


def test_a_trainer_runs_without_a_warning(tmp_path):
    process = run_python(f"""
import io, handson.chainer, chainer, numpy
from chainer import training
from chainer.training import extensions
import chainer.links as L
numpy.random.seed(0)
data = chainer.datasets.TupleDataset(numpy.random.rand(60, 1, 8, 8).astype('f'), numpy.arange(60, dtype='i') % 3)
train = chainer.iterators.SerialIterator(data, 10)
test = chainer.iterators.SerialIterator(data, 16, repeat=False, shuffle=False)
model = L.Classifier(chainer.Sequential(L.Convolution2D(1, 4, 3), L.BatchNormalization(4), chainer.functions.relu,
                                        L.Linear(None, 3)))
optimizer = chainer.optimizers.MomentumSGD(0.05).setup(model)
table = io.StringIO()
def trainer():
    trainer = training.Trainer(training.StandardUpdater(train, optimizer), (2, 'epoch'), out={str(tmp_path)!r})
    trainer.extend(extensions.Evaluator(test, model))
    trainer.extend(extensions.LogReport())
    trainer.extend(extensions.PrintReport(['epoch', 'main/loss', 'validation/main/accuracy', 'elapsed_time'], out=table))
    trainer.extend(extensions.ProgressBar(update_interval=2))
    trainer.extend(extensions.snapshot())
    return trainer
trainer().run()
assert 'validation/main/accuracy' in table.getvalue()
again = trainer()
chainer.serializers.load_npz({str(tmp_path)!r} + '/snapshot_iter_12', again)
assert again.updater.epoch == 2
""")
    assert (process.returncode, process.stderr) == (0, "")
