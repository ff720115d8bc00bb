"""pbsnodes: show the nodes that the embedded PBS presents, and the jobs on them."""

import sys
import time

from handson.pbs import command

USAGE = """\
usage: pbsnodes [-a] [-S [-j] [-L]] [-F json] [vnode_name...]
       pbsnodes -l
       pbsnodes --version"""


def main():
    command.step_aside("pbsnodes")
    command.run("pbsnodes", show, USAGE)


def show(words):
    from handson.cluster import site
    from handson.pbs import machine, qstat, store
    from handson.pbs.pbs_errors import PBSError

    try:
        found, names, behind = command.split(words, "F", "aSjLlvH")
    except PBSError as error:
        raise PBSError(str(error), 1, usage=True) from None
    flags, names, json_wanted = {letter for letter, _ in found}, names + (behind or []), ("F", "json") in found
    if not flags and not names:
        raise PBSError(usage=True)
    qstat.look_after_the_queue()
    with store.reading() as db:
        every_node = machine.nodes(site.load(qstat.site_path(db)))
        running = store.select(db, "state IN ('R', 'E')")
    if "l" in flags:
        return 0  # -l lists the nodes that are down, and none ever is
    nodes = [node for node in every_node if not names or node.name in names]
    if "S" in flags or "j" in flags:
        (show_jobs if "j" in flags else show_table)(nodes, running)
    elif json_wanted:
        import json

        listing = {node.name: attributes(node, running) for node in nodes}
        answer = {
            "timestamp": int(time.time()),
            "pbs_version": "embedded",
            "pbs_server": machine.server_name(),
            "nodes": listing,
        }
        print(json.dumps(answer, indent="\t", separators=(",", ":\t")))
    else:
        for node in nodes:
            print(
                "\n     ".join([node.name, *(f"{name} = {value}" for name, value in attributes(node, running).items())])
                + "\n"
            )
    sys.stdout.flush()
    unknown = [name for name in names if name not in {node.name for node in every_node}]
    for name in unknown:
        print(f"Node: {name},  Error: Unknown node ", file=sys.stderr)
    return 1 if unknown else 0


def on_node(node, running):
    """Return (job, its part of the allocation) for the jobs that run on a node."""
    return [(job, part) for job in running for part in job["allocation"] if part["node"] == node.name]


def state(node, parts, running):
    """Return the state of a node: free, job-exclusive, or job-busy if all CPUs, or all of their cores on this machine,
    are used."""
    from handson.pbs import placement

    if any(part["exclusive"] for _, part in parts):
        return "job-exclusive"
    allocations = [job["allocation"] for job in running]
    taken = placement.held(allocations, node.name)["ncpus"] >= node.ncpus or set(node.cores) <= placement.busy_cores(
        allocations
    )
    return "job-busy" if taken else "free"


def attributes(node, running):
    from handson.pbs import machine, placement

    parts, used = on_node(node, running), placement.held([job["allocation"] for job in running], node.name)
    jobs = ", ".join(
        f"{job['id']}.{job['server']}/{index}" for job, part in parts for index in range(len(part["chunks"]))
    )
    return {
        "Mom": machine.server_name(),
        "ntype": "PBS",
        "state": state(node, parts, running),
        "pcpus": node.ncpus,
        **({"jobs": jobs} if jobs else {}),
        "resources_available.arch": "linux",
        **({"resources_available.gpu_memory": f"{node.gpu_memory}kb"} if node.gpu_memory else {}),
        "resources_available.host": node.name,
        "resources_available.mem": f"{node.mem}kb",
        "resources_available.ncpus": node.ncpus,
        "resources_available.ngpus": node.ngpus,
        "resources_available.vnode": node.name,
        "resources_assigned.mem": f"{used['mem']}kb",
        "resources_assigned.ncpus": used["ncpus"],
        "resources_assigned.ngpus": used["ngpus"],
        "resv_enable": "True",
        "sharing": "default_shared",
    }


def show_table(nodes, running):
    """Print pbsnodes -aS: the resources of each node."""
    print(
        "vnode           state           OS       hardware host            queue        mem     ncpus   nmics   ngpus "
        " comment"
    )
    print(*("-" * width for width in (15, 15, 8, 8, 15, 10, 8, 7, 7, 7, 9)))
    for node in nodes:
        found = state(node, on_node(node, running), running)
        print(
            f"{node.name:<15} {found:<15} {'--':<8} {'--':<8} {node.name:<15} {'--':<10} {short(node.mem):>8}"
            f" {node.ncpus:>7} {0:>7} {node.ngpus:>7} --"
        )


def show_jobs(nodes, running):
    """Print pbsnodes -aSj: free/total of each resource."""
    from handson.pbs import placement

    print(f"{'':56}mem       ncpus   nmics   ngpus")
    print(f"{'vnode':<15} {'state':<15} {'njobs':>5} {'run':>5} {'susp':>6}      f/t        f/t     f/t     f/t   jobs")
    print("--------------- --------------- ------ ----- ------ ------------ ------- ------- ------- -------")
    for node in nodes:
        parts, used = on_node(node, running), placement.held([job["allocation"] for job in running], node.name)
        jobs = ",".join(job["id"] for job, _ in parts) or "--"
        free = [
            f"{short(node.mem - used['mem'])}/{short(node.mem)}",
            f"{node.ncpus - used['ncpus']}/{node.ncpus}",
            "0/0",
        ]
        free.append(f"{node.ngpus - used['ngpus']}/{node.ngpus}")
        print(
            f"{node.name:<15} {state(node, parts, running):<15} {len(parts):>6} {len(parts):>5} {0:>6}"
            f" {free[0]:>12} {free[1]:>7} {free[2]:>7} {free[3]:>7} {jobs}"
        )


def short(size):
    """Return, for example, ``24gb`` for a number of kb."""
    for unit in ("kb", "mb", "gb"):
        if size < 1024:
            return f"{size}{unit}"
        size //= 1024
    return f"{size}tb"
