"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.checks.check import starred
from grader.units.model_parallel import fully_sharded, memory, pipeline, products, schedules

STARS = (
    "pytorch/fully_sharded.py",
    "pytorch/torch_pipeline.py",
    "pytorch/products_sequence.py",
    "pytorch/products_dtensor.py",
    "pytorch/mesh.py",
    "chainer/chain_list.py",
)
CHECKS = {
    file: starred(checks) if file in STARS else checks
    for part in (memory, fully_sharded, schedules, pipeline, products)
    for file, checks in part.CHECKS.items()
}
CHECKS["notebook"] = starred(memory.NOTEBOOK, "prediction_gathers")
CHECKS["notebook_b"] = starred(
    schedules.NOTEBOOK + products.NOTEBOOK, "held_bytes", "step_seconds", "prediction_times", "images_of_equal_bytes"
)
