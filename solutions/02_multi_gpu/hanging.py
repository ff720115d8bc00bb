"""Two ranks report their mean loss after each epoch, but never end: why? torchrun --standalone --nproc-per-node 2
hanging.py"""

import faulthandler
from pathlib import Path

import torch
import torch.distributed as dist

LIMIT = 10  # seconds after which a rank that still runs writes where it is, and ends


def report(log, loss):
    """Append the mean of all ranks' losses to rank 0's list `log`; `loss` is a tensor with this rank's loss."""
    ### BEGIN SOLUTION report: append a float to `log` on rank 0; no rank may wait forever
    dist.all_reduce(loss)
    if dist.get_rank() == 0:
        log.append(loss.item() / dist.get_world_size())
    ### GIVEN if dist.get_rank() == 0:
    ### GIVEN     dist.all_reduce(loss)
    ### GIVEN     log.append(loss.item() / dist.get_world_size())
    ### END SOLUTION


def main():
    dist.init_process_group("gloo")
    Path("results").mkdir(exist_ok=True)
    with open(f"results/stack_of_rank_{dist.get_rank()}.txt", "w") as stack:
        faulthandler.dump_traceback_later(LIMIT, exit=True, file=stack)
        log = []
        for epoch in range(3):
            loss = torch.tensor(2.0 / (epoch + 1) + dist.get_rank())  # replaces real training
            report(log, loss)
            dist.barrier()  # all ranks begin the next epoch together
        faulthandler.cancel_dump_traceback_later()
    if dist.get_rank() == 0:
        print("mean losses:", *log)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
