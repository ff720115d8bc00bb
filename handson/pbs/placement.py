"""Decide where a job can run: pure functions of the site's nodes, the job's request, and the allocations of running
jobs.

A running job holds an *allocation*: one dict for each of its nodes, ``{"node": name, "chunks": [...], "slots": [...],
"cores": [...], "exclusive": bool}``.
"""

from handson.pbs.resources import COUNTED

MOST_CHUNKS = 10_000  # more than any machine can hold


class Waits(Exception):
    """A job cannot start now; the text is PBS's comment."""


def node_stock(node):
    """Return the amount of each counted resource of a node (kb for memory)."""
    return {"ncpus": node.ncpus, "ngpus": node.ngpus, "mem": node.mem, "nmics": 0, "naccelerators": 0, "vmem": node.mem}


def held(running, name):
    """Return the amount of each resource of node `name` that the allocations `running` hold."""
    parts = [part for allocation in running for part in allocation if part["node"] == name]
    return {resource: sum(chunk.get(resource, 0) for part in parts for chunk in part["chunks"]) for resource in COUNTED}


def workers(chunk):
    """Return the number of cores that the processes of a chunk keep busy."""
    return max(chunk.get("ncpus", 1), chunk.get("ngpus", 0), chunk.get("mpiprocs", 1) * chunk.get("ompthreads", 1))


def impossible(wanted, nodes):
    """Return PBS's comment for a job that even idle `nodes` cannot run, or None for a job that they can run."""
    count = sum(chunk["count"] for chunk in wanted["chunks"])
    if count > MOST_CHUNKS or _spread(_one_by_one(wanted), wanted, nodes, []) is None:
        return "Can Never Run: " + _shortage(wanted, nodes, [], "Not enough total nodes available")


def _one_by_one(wanted):
    return [chunk for chunk in wanted["chunks"] for _ in range(chunk["count"])]


def place(wanted, nodes, running):
    """Return the allocation for a (possible) job that requests `wanted` (see resources.parse), in addition to the
    allocations `running`.

    Raises Waits with PBS's comment if the job has to wait for resources or for cores. Virtual nodes may have more slots
    than the machine has cores. The workers of a job may share cores with each other, but not with another running
    job.
    """
    chunks = _one_by_one(wanted)
    spread = _spread(chunks, wanted, nodes, running)
    if spread is None:
        raise Waits("Not Running: " + _shortage(wanted, nodes, running, "Not enough free nodes available"))
    allocation = _give_slots(spread, wanted, running)
    busy = busy_cores(running)
    if busy and busy & _cores(allocation):
        # In their usual order, the nodes could share cores with running jobs, so try the nodes with the most free cores
        # first.
        by_freedom = sorted(nodes, key=lambda node: -len(set(_free_slots(node, running)) & _idle_slots(node, busy)))
        spread = _spread(chunks, wanted, by_freedom, running) or spread
        allocation = _give_slots(spread, wanted, running)
        if busy & _cores(allocation):
            total = len({core for node in nodes for core in node.cores})
            needed = min(total, sum(workers(chunk) for chunk in chunks))
            raise Waits(
                f"Not Running: Insufficient amount of resource: physical cores (R: {needed} A: {total - len(busy)} T:"
                f" {total})"
            )
    return allocation


def _spread(chunks, wanted, nodes, running):
    """Return [(node, its chunks), ...], or None if the chunks do not fit."""
    if wanted["arrangement"] == "pack":
        return next(filter(None, (_deal(chunks, wanted, [node], running) for node in nodes)), None)
    return _deal(chunks, wanted, nodes, running)


def _deal(chunks, wanted, nodes, running):
    """Put each chunk, in order, onto the first node with enough free resources; each scattered chunk onto a separate
    node."""
    scatter, exclusive = wanted["arrangement"] == "scatter", wanted["sharing"] == "excl"
    room = {}
    for node in nodes:
        parts = [part for allocation in running for part in allocation if part["node"] == node.name]
        if any(part["exclusive"] for part in parts) or exclusive and parts:
            continue
        used = held(running, node.name)
        room[node.name] = {resource: stock - used[resource] for resource, stock in node_stock(node).items()}
    dealt = {}
    for chunk in chunks:
        for node in nodes:
            free = room.get(node.name)
            if free is None or scatter and node.name in dealt or not _is_named(node, chunk):
                continue
            if all(chunk.get(resource, 0) <= free[resource] for resource in COUNTED):
                for resource in COUNTED:
                    free[resource] -= chunk.get(resource, 0)
                dealt.setdefault(node.name, (node, []))[1].append(chunk)
                break
        else:
            return None
    return list(dealt.values())


def _is_named(node, chunk):
    return (
        chunk.get("host", node.name) == node.name == chunk.get("vnode", node.name)
        and chunk.get("arch", "linux") == "linux"
    )


def _shortage(wanted, nodes, running, too_few_nodes):
    """Return why the chunks do not fit, in PBS's words: R requested, A available, T in total."""
    chunks = wanted["chunks"]
    count = sum(chunk["count"] for chunk in chunks)
    if wanted["arrangement"] == "scatter" and count > len(nodes):
        return too_few_nodes
    stock = [node_stock(node) for node in nodes]
    free = [{r: node[r] - held(running, n.name)[r] for r in COUNTED} for node, n in zip(stock, nodes, strict=True)]
    together = sum if wanted["arrangement"] == "free" else max
    for resource in COUNTED:
        asked = [chunk["count"] * chunk.get(resource, 0) for chunk in chunks]
        each = max(chunk.get(resource, 0) for chunk in chunks)
        needed = each if wanted["arrangement"] == "scatter" else sum(asked)
        for need, over in ((needed, together), (each, max)):
            available = over(node[resource] for node in free)
            if need > available:
                unit = "kb" if resource in ("mem", "vmem") else ""
                total = over(node[resource] for node in stock)
                return (
                    f"Insufficient amount of resource: {resource} (R: {need}{unit} A: {available}{unit} T:"
                    f" {total}{unit})"
                )
    return too_few_nodes


def busy_cores(running):
    """Return the cores of this machine that the allocations `running` use."""
    return {core for allocation in running for part in allocation for core in part["cores"]}


def _cores(allocation):
    return {core for part in allocation for core in part["cores"]}


def _free_slots(node, running):
    taken = {
        slot for allocation in running for part in allocation if part["node"] == node.name for slot in part["slots"]
    }
    return [slot for slot in range(len(node.cores)) if slot not in taken]


def _idle_slots(node, busy):
    return {slot for slot, core in enumerate(node.cores) if core not in busy}


def _give_slots(spread, wanted, running):
    """Return the allocation: slots, and so cores, for the chunks of each node. Slots with unused cores come first."""
    allocation, busy = [], busy_cores(running)
    own = set()
    for node, chunks in spread:
        number = min(len(node.cores), sum(workers(chunk) for chunk in chunks))
        free = set(_free_slots(node, running))
        slots = []
        for _ in range(number):
            rest = [slot for slot in range(len(node.cores)) if slot not in slots]
            slots.append(
                min(rest, key=lambda slot: (slot not in free, node.cores[slot] in busy, node.cores[slot] in own, slot))
            )
            own.add(node.cores[slots[-1]])
        slots.sort()
        allocation.append(
            {
                "node": node.name,
                "chunks": [{key: value for key, value in chunk.items() if key != "count"} for chunk in chunks],
                "slots": slots,
                "cores": sorted({node.cores[slot] for slot in slots}),
                "exclusive": wanted["sharing"] == "excl",
            }
        )
    return allocation


def exec_vnode(allocation):
    """Return, for example, ``(node1:ngpus=2:ncpus=1)+(node2:ngpus=2:ncpus=1)``."""
    parts = []
    for part in allocation:
        for chunk in part["chunks"]:
            counted = [
                f"{r}={n}kb" if r in ("mem", "vmem") else f"{r}={n}" for r, n in chunk.items() if r in COUNTED and n
            ]
            parts.append("(" + ":".join([part["node"], *counted]) + ")")
    return "+".join(parts)


def exec_host(allocation, running):
    """Return, for example, ``node1/0+node2/0*2``: a number for each chunk on its node, and its number of CPUs."""
    parts = []
    for part in allocation:
        index = sum(len(other["chunks"]) for held_by in running for other in held_by if other["node"] == part["node"])
        for chunk in part["chunks"]:
            ncpus = chunk.get("ncpus", 1)
            parts.append(f"{part['node']}/{index}" + (f"*{ncpus}" if ncpus > 1 else ""))
            index += 1
    return "+".join(parts)


def node_file(allocation):
    """Return the node's name once for each MPI process, in the order of the chunks."""
    return [part["node"] for part in allocation for chunk in part["chunks"] for _ in range(chunk.get("mpiprocs", 1))]
