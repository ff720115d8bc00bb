"""Who runs where and when: accounting, cores, and first come first served (no process is started here)."""

import itertools
import sqlite3

import pytest

from handson.cluster import site
from handson.pbs import depend, machine, pbsnodes, placement, resources, scheduler, store


def nodes(count=2, gpus=2, ncpus=2, cores=(0, 1), mem=8 << 20):
    width = max(gpus, ncpus)
    return tuple(
        machine.Node(f"node{k + 1}", ncpus, gpus, mem, tuple(cores[(k * width + i) % len(cores)] for i in range(width)))
        for k in range(count)
    )


def ask(select="1:ncpus=1", place=None):
    return resources.parse({"select": select} | ({"place": place} if place else {}))


def place(wanted, machine, running=()):
    assert placement.impossible(wanted, machine) is None
    return placement.place(wanted, machine, list(running))


def where(allocation):
    return [(part["node"], len(part["chunks"]), part["slots"], part["cores"]) for part in allocation]


ALL = ask("2:ngpus=2:mpiprocs=2:ompthreads=1", "scatter")
EIGHT = tuple(range(8))


def test_scattered_chunks_get_a_node_each():
    allocation = place(ALL, nodes(cores=EIGHT))
    assert where(allocation) == [("node1", 1, [0, 1], [0, 1]), ("node2", 1, [0, 1], [2, 3])]
    assert placement.node_file(allocation) == ["node1", "node1", "node2", "node2"]
    assert placement.exec_vnode(allocation) == "(node1:ngpus=2:ncpus=1)+(node2:ngpus=2:ncpus=1)"
    assert placement.exec_host(allocation, []) == "node1/0+node2/0"


def test_free_chunks_fill_the_first_node_first():
    assert [part[:2] for part in where(place(ask("2:ngpus=1"), nodes(cores=EIGHT)))] == [("node1", 2)]
    assert [part[:2] for part in where(place(ask("3:ngpus=1:ncpus=0"), nodes(cores=EIGHT)))] == [
        ("node1", 2),
        ("node2", 1),
    ]


def test_a_node_says_what_it_has_and_what_of_it_is_taken():
    job = {"id": 7, "server": "here", "allocation": place(ask("1:ngpus=1:mem=1gb"), nodes(cores=EIGHT))}
    shown = pbsnodes.attributes(nodes(cores=EIGHT)[0], [job])
    assert [
        shown[f"resources_{kind}.{name}"] for kind in ("available", "assigned") for name in ("ngpus", "ncpus", "mem")
    ] == [2, 2, "8388608kb", 1, 1, "1048576kb"]
    assert (shown["state"], shown["jobs"]) == ("free", "7.here/0")


def test_packed_chunks_stay_on_one_node():
    busy = place(ask("1:ngpus=1"), nodes(cores=EIGHT))
    assert [part[0] for part in where(place(ask("2:ngpus=1", "pack"), nodes(cores=EIGHT), [busy]))] == ["node2"]


def test_a_chunk_may_name_its_host():
    assert where(place(ask("1:host=node2"), nodes(cores=EIGHT)))[0][0] == "node2"
    assert placement.impossible(ask("1:host=node9"), nodes()) == "Can Never Run: Not enough total nodes available"


def test_the_chunk_that_was_asked_for_first_has_the_first_line_of_the_node_file():
    allocation = place(ask("1:ncpus=2+1:ncpus=1:mpiprocs=2"), nodes(cores=EIGHT))
    assert placement.node_file(allocation) == ["node1", "node2", "node2"]
    assert placement.exec_host(allocation, []) == "node1/0*2+node2/0"


@pytest.mark.parametrize(
    "wanted, comment",
    [
        (ask("100:ncpus=1"), "Insufficient amount of resource: ncpus (R: 100 A: 4 T: 4)"),
        (ask("999999:ncpus=0"), "Not enough total nodes available"),
        (ask("3:ngpus=2", "scatter"), "Not enough total nodes available"),
        (ask("3:ngpus=2"), "Insufficient amount of resource: ngpus (R: 6 A: 4 T: 4)"),
        (ask("1:ngpus=3"), "Insufficient amount of resource: ngpus (R: 3 A: 2 T: 2)"),
        (ask("2:ngpus=3", "scatter"), "Insufficient amount of resource: ngpus (R: 3 A: 2 T: 2)"),
        (ask("4:ngpus=1:ncpus=0", "pack"), "Insufficient amount of resource: ngpus (R: 4 A: 2 T: 2)"),
        (ask("1:mem=9gb"), f"Insufficient amount of resource: mem (R: {9 << 20}kb A: {8 << 20}kb T: {8 << 20}kb)"),
        (ask("1:arch=windows"), "Not enough total nodes available"),
    ],
)
def test_the_impossible_is_said_in_the_words_of_pbs(wanted, comment):
    assert placement.impossible(wanted, nodes()) == f"Can Never Run: {comment}"


@pytest.mark.parametrize(
    "wanted, comment",
    [
        (ask("4:ncpus=1"), "Not Running: Insufficient amount of resource: ncpus (R: 4 A: 3 T: 4)"),
        (ask("2:ncpus=2", "scatter"), "Not Running: Not enough free nodes available"),
        (ask("2", "scatter:excl"), "Not Running: Not enough free nodes available"),
    ],
)
def test_waiting_is_said_in_the_words_of_pbs(wanted, comment):
    busy = place(ask(), nodes(cores=EIGHT))
    with pytest.raises(placement.Waits) as waits:
        place(wanted, nodes(cores=EIGHT), [busy])
    assert str(waits.value) == comment


def test_an_exclusive_job_shares_its_node_with_nobody():
    alone = place(ask("1", "excl"), nodes(cores=EIGHT))
    assert where(place(ask("1"), nodes(cores=EIGHT), [alone]))[0][0] == "node2"


def test_jobs_on_one_node_have_their_own_cores():
    machine, running, seen = nodes(count=1, gpus=4, ncpus=4, cores=EIGHT), [], []
    for _ in range(4):
        running.append(place(ask("1:ngpus=1"), machine, running))
        seen += running[-1][0]["cores"]
    assert seen == [0, 1, 2, 3]
    assert placement.exec_host(running[3], running[:3]) == "node1/3"


def test_a_job_gets_a_core_for_each_of_its_workers():
    machine = nodes(count=1, gpus=4, ncpus=4, cores=EIGHT)
    for select, cores in (("1:ncpus=3", 3), ("1:ngpus=2", 2), ("1:mpiprocs=2:ompthreads=2", 4), ("1:mpiprocs=9", 4)):
        assert len(place(ask(select), machine)[0]["cores"]) == cores


def test_a_job_spreads_over_idle_cores_rather_than_sharing_them():
    """node1 and node2 lie on the same two cores; one worker on each must not end up on one core."""
    allocation = place(ask("2:ngpus=1", "scatter"), nodes(cores=(0, 1)))
    assert [part["cores"] for part in allocation] == [[0], [1]]


def test_a_job_alone_may_share_its_cores_among_its_workers():
    assert [part["cores"] for part in place(ALL, nodes(cores=(0, 1)))] == [[0, 1], [0, 1]]
    assert [part["cores"] for part in place(ALL, nodes(cores=(7,)))] == [[7], [7]]


def test_a_job_waits_for_cores_that_a_running_job_uses():
    machine = nodes(cores=(0, 1))
    busy = place(ask("1:ngpus=2"), machine)
    with pytest.raises(placement.Waits) as waits:
        place(ask("1:ngpus=1"), machine, [busy])
    assert str(waits.value) == "Not Running: Insufficient amount of resource: physical cores (R: 1 A: 0 T: 2)"


def test_two_small_jobs_share_the_machine_but_no_core():
    machine = nodes(cores=(0, 1))
    first = place(ask("1:ngpus=1"), machine)
    second = place(ask("1:ngpus=1"), machine, [first])
    assert first[0]["cores"] != second[0]["cores"]


def test_another_node_is_taken_when_only_there_a_core_is_idle():
    machine = nodes(cores=(0, 1, 2, 3))
    first = place(ask("1:ncpus=1:mpiprocs=2"), machine)  # one CPU of node1 by the books, but both its cores
    assert where(place(ask(), machine, [first])) == [("node2", 1, [0], [2])]


# First come, first served ------------------------------------------------------


class Queue:
    """Jobs in a database in memory, and the scheduler's plan for them."""

    def __init__(self, monkeypatch, present):
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self.db.executescript(store.SCHEMA)
        self.numbers = itertools.count()
        monkeypatch.setattr(site, "load", lambda path: None)
        monkeypatch.setattr(machine, "nodes", lambda site: present)

    def submit(self, wanted, **values):
        seq = next(self.numbers)
        job = {
            "id": str(seq),
            "seq": seq,
            "index": None,
            "state": "Q",
            "asked": wanted,
            "hold": "n",
            "depend": [],
            "not_before": 0,
        }
        job |= {"array": None, "server": "here", "run_count": 0} | values
        store.put(self.db, job, b"")
        return job["id"]

    def pass_over(self, now=1000.0):
        """One pass: the ids that start, and the comments of all others."""
        jobs = store.select(self.db, store.UNFINISHED)
        started = [job["id"] for job in scheduler.plan(self.db, jobs, now)]
        return started, {job["id"]: job.get("comment") for job in store.select(self.db, "state IN ('Q', 'H', 'W')")}

    def end(self, job_id, code=0):
        job = store.get(self.db, job_id)
        job.update(state="F", exit_status=code, stime=1.0)
        store.put(self.db, job)

    def job(self, job_id):
        return store.get(self.db, job_id)


@pytest.fixture
def queue(monkeypatch):
    return Queue(monkeypatch, nodes(cores=(0, 1)))


def test_jobs_that_fit_run_together_and_the_rest_wait_in_their_order(queue):
    first, second = queue.submit(ask("1:ngpus=1")), queue.submit(ask("1:ngpus=1"))
    large, small = queue.submit(ALL), queue.submit(ask("1:ngpus=1"))
    started, comments = queue.pass_over()
    assert started == [first, second]
    assert comments[large] == "Not Running: Not enough free nodes available"
    assert comments[small] == "Not Running: Job would break strict sorted order"
    queue.end(first)
    assert queue.pass_over()[0] == [], "the small job must not overtake the large one"
    queue.end(second)
    assert queue.pass_over()[0] == [large]
    queue.end(large)
    assert queue.pass_over()[0] == [small]


def test_a_job_that_can_never_run_stands_in_nobodys_way(queue):
    never, fine = queue.submit(ask("9:ncpus=1")), queue.submit(ask())
    started, comments = queue.pass_over()
    assert started == [fine]
    assert comments[never].startswith("Can Never Run: ")


def test_a_broken_site_file_is_the_comment_of_every_waiting_job(queue, monkeypatch):
    def broken(path):
        raise site.SiteError("site file x is invalid")

    monkeypatch.setattr(site, "load", broken)
    job = queue.submit(ask())
    assert queue.pass_over() == ([], {job: "Not Running: site file x is invalid"})


@pytest.mark.parametrize(
    "kind, code, starts",
    [
        ("afterok", 0, True),
        ("afterok", 1, False),
        ("afternotok", 0, False),
        ("afternotok", 1, True),
        ("afterany", 7, True),
    ],
)
def test_what_an_end_means_to_the_jobs_that_wait_for_it(queue, kind, code, starts):
    first = queue.submit(ask())
    second = queue.submit(ask(), state="H", depend=[[kind, [first]]])
    assert queue.pass_over()[0] == [first]
    queue.end(first, code)
    assert queue.pass_over()[0] == ([second] if starts else [])
    if not starts:
        assert queue.job(second)["state"] == "F"
        assert queue.job(second)["comment"] == "Job deleted as result of dependency on job 0.here"


def test_after_waits_for_the_start_only(queue):
    first = queue.submit(ask())
    second = queue.submit(ask(), state="H", depend=[["after", [first]]])
    assert queue.pass_over()[0] == [first]
    assert queue.pass_over()[0] == [second]


def test_before_makes_the_other_job_wait(queue):
    other = queue.submit(ask(), state="H", depend=[["on", 1]])
    assert queue.pass_over()[0] == []
    first = queue.submit(ask(), depend=[["beforeok", [other]]])
    job = queue.job(first)
    depend.register(queue.db, job)
    store.put(queue.db, job)
    assert queue.pass_over()[0] == [first]
    assert queue.pass_over()[0] == []
    queue.end(first)
    assert queue.pass_over()[0] == [other]


def submit_array(queue, count, limit=None, state="Q"):
    array = queue.submit(
        ask("1:ngpus=1"), array={"first": 0, "last": count - 1, "step": 1, "limit": limit}, state=state
    )
    for index in range(count):
        job = queue.job(array)
        store.put(queue.db, job | {"id": f"{array}[{index}]", "index": index, "array": None, "state": "Q"})
    renamed = queue.job(array) | {"id": f"{array}[]"}
    queue.db.execute("DELETE FROM jobs WHERE id = ?", [array])
    store.put(queue.db, renamed)
    return array


def test_sub_jobs_start_as_the_machine_allows(queue):
    array = submit_array(queue, 3)
    assert queue.pass_over()[0] == [f"{array}[0]", f"{array}[1]"]
    assert queue.job(f"{array}[]")["state"] == "B"
    assert queue.job(f"{array}[]")["comment"].startswith("Job Array Began at ")


def test_an_array_may_limit_how_many_run_together(queue):
    array = submit_array(queue, 3, limit=1)
    after = queue.submit(ask("1:ngpus=1"))
    assert queue.pass_over()[0] == [f"{array}[0]", after]
