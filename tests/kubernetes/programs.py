"""The programs that the tests of this folder call: .ci/run installs them."""

import os
import shutil

import pytest


def need(*names):
    """Skip the test where one of the programs is missing; in CI, that is a failure."""
    if missing := [name for name in names if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            f"not installed here: {', '.join(missing)}; see .ci/run"
        )
