"""Compute one accuracy from the counts of four ranks, with MPI: mpiexec -n 4 python -m mpi4py mpi_accuracy.py

With `-m mpi4py`, an error on one rank ends all ranks.
"""

import faulthandler

from mpi4py import MPI

LIMIT = 10  # seconds after which a rank that still runs writes where it is, and ends


def accuracy(comm, correct, images):
    """Return the accuracy on the test images of all ranks, on every rank.

    comm: all ranks; correct: how many of its `images` test images this rank classified correctly.
    """
    ### BEGIN SOLUTION mpi_accuracy:
    ### return the accuracy on every rank; use methods of `comm` such as comm.allreduce(number)
    return comm.allreduce(correct) / comm.allreduce(images)
    ### END SOLUTION


def main():
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    comm = MPI.COMM_WORLD
    correct, images = 10 * (comm.rank + 1), 60 + 10 * comm.rank  # replaces a real evaluation
    found = accuracy(comm, correct, images)
    lines = comm.gather(
        f"rank {comm.rank} on {MPI.Get_processor_name()}: {correct} of {images} here, {found!s:.5} of all"
    )
    if comm.rank == 0:  # only rank 0 receives the list from gather
        print(*lines, sep="\n")


if __name__ == "__main__":
    main()
