"""What runs on a GPU is found among all scripts, on any machine."""

from gpu_scripts import OF_FRAMEWORKS, ROOT, SCRIPTS


def test_make_test_gpu_runs_every_training_script():
    scripts = {str(path.relative_to(ROOT / "solutions")) for path in ROOT.glob("solutions/*/*/train_*.py")}
    assert scripts <= SCRIPTS.keys() | OF_FRAMEWORKS.keys()
