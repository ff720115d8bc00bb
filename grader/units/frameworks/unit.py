"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.units.frameworks import frameworks_notebook, replicas, tf_config, translated

CHECKS = {
    "tensorflow/cluster.py": tf_config.CHECKS,
    "tensorflow/replicas.py": replicas.CHECKS,
    "lightning/train_cifar_lightning.py": translated.LIGHTNING,
    "accelerate/train_cifar_accelerate.py": translated.ACCELERATE,
    "notebook": frameworks_notebook.CHECKS,
}
