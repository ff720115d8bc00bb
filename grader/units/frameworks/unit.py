"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.units.frameworks import cluster, notebook, replicas

CHECKS = {
    "tensorflow/cluster.py": cluster.CHECKS,
    "tensorflow/replicas.py": replicas.CHECKS,
    "notebook": notebook.CHECKS,
}
