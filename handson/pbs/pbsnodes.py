"""pbsnodes: the nodes that the embedded PBS presents, and what runs on them."""

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
    from handson.pbs.errors import PBSError

    if words == ["--version"]:
        print("pbs_version = embedded PBS of the hands-on course, in the manner of 23.06")
        return 0
    flags, names, words, json_wanted = set(), [], list(words), False
    while words:
        word = words.pop(0)
        if word in ("-F", "-Fjson"):
            json_wanted = word == "-Fjson" or bool(words) and words.pop(0) == "json"
        elif word.startswith("-"):
            if not set(word[1:]) <= set("aSjLlvH") or word == "-":
                raise PBSError(f"invalid option -- '{word[1:2]}'", 2, usage=True)
            flags |= set(word[1:])
        else:
            names.append(word)
    if not flags and not names:
        raise PBSError("which nodes? Name some, or use -a for all", 2, usage=True)
    qstat.look_after_the_queue()
    with store.reading() as db:
        every_node = machine.nodes(site.load(qstat.site_path(db)))
        running = store.select(db, "state IN ('R', 'E')")
    if "l" in flags:
        return 0  # -l lists the nodes that are down: there are none
    nodes = [node for node in every_node if not names or node.name in names]
    if "S" in flags or "j" in flags:
        show_table(nodes, running)
    elif json_wanted:
        import json

        listing = {node.name: attributes(node, running) for node in nodes}
        print(json.dumps({"timestamp": int(time.time()), "pbs_version": "embedded", "pbs_server": machine.server_name(), "nodes": listing}, indent=4))
    else:
        for node in nodes:
            print("\n     ".join([node.name, *(f"{name} = {value}" for name, value in attributes(node, running).items())]) + "\n")
    unknown = sorted(set(names) - {node.name for node in every_node})
    for name in unknown:
        command.say("pbsnodes", f"Node: {name},  Error: Unknown node ")
    return 1 if unknown else 0


def on_node(node, running):
    """(job, its part of the allocation) for the jobs that run on a node."""
    return [(job, part) for job in running for part in job["allocation"] if part["node"] == node.name]


def state(node, parts, used):
    if any(part["exclusive"] for _, part in parts):
        return "job-exclusive"
    return "job-busy" if used["ncpus"] >= node.ncpus else "free"


def attributes(node, running):
    from handson.pbs import machine, placement

    parts, used = on_node(node, running), placement.held([job["allocation"] for job in running], node.name)
    jobs = ", ".join(f"{job['id']}.{job['server']}/{index}" for job, part in parts for index in range(len(part["chunks"])))
    return {
        "Mom": machine.server_name(),
        "ntype": "PBS",
        "state": state(node, parts, used),
        "pcpus": node.ncpus,
        **({"jobs": jobs} if jobs else {}),
        "resources_available.arch": "linux",
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
    """pbsnodes -aSj: free/total of each resource."""
    from handson.pbs import placement

    print(f"{'':56}mem       ncpus   nmics   ngpus")
    print(f"{'vnode':<15} {'state':<15} {'njobs':>5} {'run':>5} {'susp':>6}      f/t        f/t     f/t     f/t   jobs")
    print("--------------- --------------- ------ ----- ------ ------------ ------- ------- ------- -------")
    for node in nodes:
        parts, used = on_node(node, running), placement.held([job["allocation"] for job in running], node.name)
        jobs = ",".join(job["id"] for job, _ in parts) or "--"
        free = [f"{short(node.mem - used['mem'])}/{short(node.mem)}", f"{node.ncpus - used['ncpus']}/{node.ncpus}", "0/0"]
        free.append(f"{node.ngpus - used['ngpus']}/{node.ngpus}")
        print(
            f"{node.name:<15} {state(node, parts, used):<15} {len(parts):>6} {len(parts):>5} {0:>6}"
            f" {free[0]:>12} {free[1]:>7} {free[2]:>7} {free[3]:>7} {jobs}"
        )


def short(size):
    """``24gb`` for a number of kb."""
    for unit in ("kb", "mb", "gb"):
        if size < 1024:
            return f"{size}{unit}"
        size //= 1024
    return f"{size}tb"
