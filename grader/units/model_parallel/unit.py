"""What the unit is made of: the checks of each of its files, by their places in its folder of solutions."""

from grader.checks.check import starred
from grader.units.model_parallel import memory, pipeline, products, schedules

STARS = "pytorch/torch_pipeline.py", "pytorch/products_dtensor.py", "pytorch/mesh.py", "chainer/chain_list.py"
CHECKS = {
    file: starred(checks) if file in STARS else checks
    for part in (memory, schedules, pipeline, products)
    for file, checks in part.CHECKS.items()
}
CHECKS["notebook"] = memory.NOTEBOOK
CHECKS["notebook_b"] = starred(
    schedules.NOTEBOOK + products.NOTEBOOK, "held_bytes", "step_seconds", "prediction_times", "images_of_equal_bytes"
)
