"""Every Python whose PYTHONPATH has this folder (environments.QUICK_START) runs this first: it has the stand-in for
PyTorch's compiler."""

import os.path
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import no_compiler  # noqa: E402, F401

sys.path.pop()
