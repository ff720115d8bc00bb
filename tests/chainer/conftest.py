"""Fixtures for tests of the scripts: a small data set, and `run`."""

import pytest
from script_runs import SIZE, Run, write_data_set


@pytest.fixture(scope="session")
def small_set(tmp_path_factory):
    """The path of a data set with which an epoch takes a tenth of a second."""
    return write_data_set(tmp_path_factory.mktemp("data") / "squares.npz")


@pytest.fixture(scope="session")
def start(small_set, tmp_path_factory):
    """Start a script on the small data set: see Run. Options may name another."""
    folder = tmp_path_factory.mktemp("started_here")

    def start(script, *options, ranks=None):
        first = [] if script == "mnist" else ["--dataset", small_set, "--size", SIZE]
        if options and isinstance(options[0], list):
            return Run(script, *([*first, *own] for own in options), ranks=ranks, folder=folder)
        return Run(script, *first, *options, ranks=ranks, folder=folder)

    return start


@pytest.fixture(scope="session")
def run(start):
    """Start a script and wait for its end; returns the Run."""
    return lambda *arguments, **options: start(*arguments, **options).end()
