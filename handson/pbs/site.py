"""The machine that the embedded PBS presents: how many nodes, virtual GPUs and cores, its queues and groups.

It is described by a file of ``jobs/sites/``: the one that ``HANDSON_SITE`` names (a path, or a name in that folder), or that
``python -m handson site use`` has chosen, or ``local.toml``.
"""

import os
from collections import namedtuple
from pathlib import Path

from handson.pbs.errors import PBSError
from handson.pbs.resources import parse_size

SITES = Path(__file__).resolve().parent.parent.parent / "jobs" / "sites"
CHOSEN = SITES / "CHOSEN"  # holds the name of the site that `python -m handson site use` has chosen


# mem in kb; cores: the core of each slot (virtual GPU or CPU) of the node, where a core stands twice if there are too few
Node = namedtuple("Node", "name ncpus ngpus mem cores")
# path of the file; the first of the queues is the default; kill_delay: seconds between TERM and KILL; network: the rate of each node
Site = namedtuple("Site", "path nodes queues groups kill_delay network", defaults=["none"])


def server_name():
    """What stands for the server in job ids: the machine's short hostname."""
    return os.uname().nodename.split(".")[0]


def chosen():
    """The name of the site that was chosen; local if none was."""
    try:
        return CHOSEN.read_text().strip() or "local"
    except (OSError, UnicodeDecodeError):
        return "local"


def site_path(name=None):
    """The file that HANDSON_SITE (or `name`) names, a path or a name in jobs/sites; else that of the chosen site."""
    name = name or os.environ.get("HANDSON_SITE") or chosen()
    if os.sep in name or name.endswith(".toml"):
        return str(Path(name).expanduser().absolute())
    return str(SITES / f"{name}.toml")


def load(path=None):
    """The `Site` described by the file `path` (default: what `site_path` finds). Raises PBSError where it is unusable."""
    import tomllib

    path = path or site_path()
    try:
        installed_without_jobs = path == str(SITES / "local.toml") and not os.path.exists(path)  # then local.toml's values, as below
        return _site(path, {} if installed_without_jobs else tomllib.loads(Path(path).read_text()))
    except OSError as error:
        raise PBSError(f"site file {path} cannot be read ({error.strerror}): correct HANDSON_SITE, or choose another one (python -m handson site use local)", 2) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValueError, PBSError) as error:
        raise PBSError(f"site file {path} is not right ({error}): compare it with jobs/sites/local.toml", 2) from None


def _site(path, values):
    machine = values.get("machine", {})
    nodes = _number(machine, "nodes", 2, least=1)
    gpus = _number(machine, "gpus", 2)
    ncpus = _number(machine, "ncpus", 2, least=1)
    mem = parse_size(machine["mem"]) if "mem" in machine else _memory() // nodes
    usable = sorted(os.sched_getaffinity(0))
    width = max(gpus, ncpus)  # slots of a node; virtual GPU i of node k has slot k * width + i, and cores are dealt out in turn
    return Site(
        path=path,
        nodes=tuple(
            Node(f"node{k + 1}", ncpus, gpus, mem, tuple(usable[(k * width + i) % len(usable)] for i in range(width)))
            for k in range(nodes)
        ),
        queues=_names(values, "queue", "lecture"),
        groups=_names(values, "group", "gt00"),
        kill_delay=_seconds(values, "kill_delay", 10),
        network=_rate(machine, "network", "none"),
    )


def _number(table, key, default, least=0):
    value = table.get(key, default)
    if type(value) is not int or not least <= value <= 10_000:
        raise ValueError(f"{key} = {value!r}, but it must be a whole number, {least} or more")
    return value


def _seconds(table, key, default):
    value = table.get(key, default)
    if type(value) not in (int, float) or not 0 <= value <= 3600:
        raise ValueError(f"{key} = {value!r}, but it must be a number of seconds")
    return value


def _rate(table, key, default):
    value = table.get(key, default)
    if value != "none":
        from handson.cluster.virtual_nodes import bits_per_second

        bits_per_second(value)
    return value


def _names(table, key, default):
    value = table.get(key, default)
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{key} = {value!r}, but it must be a name or a list of names")
    return tuple(names)


def _memory():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024
