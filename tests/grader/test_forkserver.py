"""Servers that are forked from a process which has their libraries loaded."""

import os

import psutil
import pytest
from waiting import wait_until

from grader.sandbox import SandboxFault, forkserver
from grader.sandbox.forkserver import Forked

LIBRARIES = ("grader.probes.cases",)


@pytest.fixture
def servers(tmp_path):
    """Two of them, whose libraries would be shared in a folder."""
    both = Forked(LIBRARIES, tmp_path), Forked(LIBRARIES, tmp_path)
    yield both
    for server in both:
        server.stop()


def works(server):
    (rank,) = server.run(
        "grader.probes.cases:run_all", [[["builtins:print", [], {"case": number}] for number in (1, 2)]]
    ).ranks
    return rank.status is None and rank.output == "0 1 {'case': 1}\n0 1 {'case': 2}\n"


def of_shared():
    """The process that shares, and what it has forked."""
    running = psutil.process_iter(["ppid", "cmdline"])  # which has None for a process that ends meanwhile
    (process,) = [
        one for one in running if one.info["ppid"] == os.getpid() and (one.info["cmdline"] or [])[-1:] == [*LIBRARIES]
    ]
    return process, process.children()


@pytest.mark.thorough
def test_each_server_is_forked_from_the_process_that_has_the_libraries(servers, tmp_path):
    with forkserver.started(tmp_path, LIBRARIES):
        assert all(map(works, servers)) and not any(server.process for server in servers)
        process, forked = of_shared()
        assert len(forked) == 2
        servers[0].stop()
        wait_until(lambda: len(process.children()) == 1, "the server that was stopped has ended")
        assert all(map(works, servers)), "and one that was stopped begins anew"
    assert not process.is_running()


def test_a_server_outlives_the_process_it_was_forked_from(servers, tmp_path):
    with forkserver.started(tmp_path, LIBRARIES):
        assert works(servers[0])
    assert works(servers[0]) and not servers[0].process


def test_a_server_loads_its_libraries_itself_where_none_are_shared(servers):
    assert works(servers[0]) and servers[0].process


def test_why_shared_libraries_cannot_be_imported_is_said(tmp_path):
    server = Forked(("tests.grader.unloadable",), tmp_path)
    with forkserver.started(tmp_path, server.libraries):
        with pytest.raises(SandboxFault, match="unloadable cannot be imported"):
            server.run("tests.grader.misbehaving:behave")
    server.stop()
