"""What the Lightning script of the unit 07_frameworks imports: Lightning itself, from the second environment and
without messages that mean nothing to a student. ``from handson.lightning import L`` imports it. Raises NoFrameworks."""

import logging
import warnings

from handson import frameworks

frameworks.add()
for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
    logging.getLogger(name).setLevel(logging.ERROR)
# such as the advice to take more data-loading processes
warnings.filterwarnings("ignore", category=UserWarning, module="lightning")

import lightning as L  # noqa: E402

for name in ("lightning.pytorch", "lightning.fabric", "lightning.fabric.utilities.distributed"):
    logging.getLogger(name).setLevel(logging.ERROR)  # again: its import sets them
warnings.filterwarnings("ignore", category=DeprecationWarning, module="lightning")
warnings.filterwarnings("ignore", ".*LeafSpec.*")

__all__ = ["L"]
