"""What four ranks have counted becomes one accuracy, by calls of MPI: mpiexec -n 4 python mpi_accuracy.py"""

from mpi4py import MPI


def accuracy(comm, correct, images):
    """The accuracy on all ranks' test images, on every rank. `correct` of its `images` did this rank get right; comm:
    all ranks."""
    ### BEGIN SOLUTION mpi_accuracy:
    ### return the accuracy on every rank, by calls of `comm` such as comm.allreduce(number)
    return comm.allreduce(correct) / comm.allreduce(images)
    ### END SOLUTION


def main():
    comm = MPI.COMM_WORLD
    correct, images = 10 * (comm.rank + 1), 60 + 10 * comm.rank  # in place of an evaluation
    found = accuracy(comm, correct, images)
    lines = comm.gather(
        f"rank {comm.rank} on {MPI.Get_processor_name()}: {correct} of {images} here, {found:.3f} of all"
    )
    if comm.rank == 0:  # only here, gather returns what all ranks have sent
        print(*lines, sep="\n")


if __name__ == "__main__":
    main()
