"""torchrun without its report on a failed rank, because the rank itself has printed the reason. ``python -m handson
torchrun`` runs it on each node."""

import sys

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main

if __name__ == "__main__":
    try:
        main()
    except ChildFailedError:
        sys.exit(1)
