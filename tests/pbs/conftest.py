"""The fixture `pbs`: see pbs_harness."""

import sys

import pytest
from pbs_harness import COMMANDS, PBS, ROOT


@pytest.fixture(scope="session")
def bin_directory(tmp_path_factory):
    """Entry points as pip writes them."""
    folder = tmp_path_factory.mktemp("bin")
    for name in COMMANDS:
        program = (
            f"#!{sys.executable}\nimport sys\nsys.path.append({str(ROOT)!r})\nfrom handson.pbs.{name} import"
            " main\nsys.exit(main())\n"
        )
        (folder / name).write_text(program)
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def pbs(bin_directory, tmp_path):
    pbs = PBS(bin_directory, tmp_path)
    yield pbs
    log = pbs.close()
    assert "Traceback" not in log, log
