"""The answers to the gaps in notebook 00_start: inputs, what is right, and typical mistakes."""

from grader.instructors.notebook_answers import Function


def _job(chance):
    """Return the number of nodes, and of processes per node. One call has one of both. There are so many possible
    jobs that a list of answers cannot replace the formula."""
    select, mpiprocs = chance.randint(2, 300), chance.randint(2, 32)
    return {"select": chance.turn([1, *[select] * 5]), "mpiprocs": chance.turn([mpiprocs, 1, *[mpiprocs] * 4])}


ANSWERS = {
    "workers": Function(
        _job,
        lambda select, mpiprocs: select * mpiprocs,
        {
            "`workers` counts the processes of one node only: the job has `select` nodes": lambda select, mpiprocs: (
                mpiprocs
            ),
            (
                "`workers` adds nodes and processes: each of the `select` nodes has `mpiprocs` processes, so multiply"
            ): lambda select, mpiprocs: select + mpiprocs,
            "`workers` counts nodes, not processes": lambda select, mpiprocs: select,
        },
    )
}
