"""The answers to the gaps in notebook 00_start: inputs, what is right, and typical mistakes. recorded.json is made of them."""

from grader.instructors.notebook_answers import Function

ANSWERS = {
    "workers": Function(
        lambda chance: {"select": chance.turn([1, 2, 5, 3, 8, 4]), "mpiprocs": chance.turn([4, 1, 2, 8, 3, chance.randint(5, 9)])},
        lambda select, mpiprocs: select * mpiprocs,
        {
            "the processes of one node are counted; the job has `select` nodes": lambda select, mpiprocs: mpiprocs,
            "nodes and processes are added; each of the nodes has `mpiprocs` processes": lambda select, mpiprocs: select + mpiprocs,
            "nodes are counted, not processes": lambda select, mpiprocs: select,
        },
    ),
}
