"""Import this package before Lightning, in the scripts of the unit 07_frameworks. It imports Lightning from the second
environment, without messages that mean nothing to a student. Raises NoFrameworks."""

import logging
import warnings

from handson import frameworks

frameworks.add("lightning")
for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
    logging.getLogger(name).setLevel(logging.ERROR)
# such as the advice to use more data-loading processes
warnings.filterwarnings("ignore", category=UserWarning, module="lightning")

import lightning  # noqa: E402, F401

for name in ("lightning.pytorch", "lightning.fabric", "lightning.fabric.utilities.distributed"):
    logging.getLogger(name).setLevel(logging.ERROR)  # again, because its import sets them
warnings.filterwarnings("ignore", category=DeprecationWarning, module="lightning")
warnings.filterwarnings("ignore", ".*LeafSpec.*")
