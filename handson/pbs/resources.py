"""Parse a job's request: ``-l select``, ``place``, ``walltime`` and the older ``nodes`` and ``ncpus`` forms (PBS Pro
User's Guide, 4)."""

import re

from handson.pbs.pbs_errors import PBSError, illegal_value, not_a_text, unknown_resource, walltime_limit
from handson.sizes import bytes_of

EMBEDDED = ("network", "gpu_memory")  # resources that only the embedded PBS has
ONLY_EMBEDDED = (
    "-l network and -l gpu_memory exist only in the course's embedded PBS: leave them out; the network between real"
    " nodes is as fast as it is, and --gpu-memory of a training script limits a GPU's memory"
)

CHUNK = {  # resources of a node, allowed in a chunk of a select statement: name -> type
    "ncpus": "int",
    "ngpus": "int",
    "nmics": "int",
    "mpiprocs": "int",
    "ompthreads": "int",
    "naccelerators": "int",
    "mem": "size",
    "vmem": "size",
    "accelerator_memory": "size",
    "arch": "text",
    "host": "text",
    "vnode": "text",
    "accelerator": "text",
    "accelerator_model": "text",
}
JOB = {  # these resources belong to the whole job, not to a chunk
    "walltime": "time",
    "min_walltime": "time",
    "max_walltime": "time",
    "soft_walltime": "time",
    "cput": "time",
    "pcput": "time",
    "pmem": "size",
    "pvmem": "size",
    "file": "size",
    "nice": "int",
    "software": "text",
    "select": "select",
    "place": "place",
    "nodes": "nodes",
    "nodect": "int",
    "network": "rate",  # each node's network; only in the embedded PBS
    "gpu_memory": "memory",  # each virtual GPU; only in the embedded PBS
}
HINTS = {  # type -> description of its values, for types that a real PBS does not have
    "rate": "a number with mbit or gbit, as in -l network=100mbit, or none",
    "memory": "a number with kb, mb, gb or tb, as in -l gpu_memory=300mb, or unlimited",
}
COUNTED = ("ncpus", "ngpus", "nmics", "naccelerators", "mem", "vmem")  # resources of which a node has a limited amount
SUMMED = COUNTED + ("mpiprocs",)  # resources that Resource_List adds up over all chunks
SIZE_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


def parse_time(text):
    """Return the seconds of ``[[HH:]MM:]SS[.ms]``. Raises ValueError."""
    if not re.fullmatch(r"([0-9]{1,10}:){0,2}[0-9]{1,10}(\.[0-9]*)?", text):
        raise ValueError(f"{text!r} is not a time")
    seconds = 0
    for part in text.partition(".")[0].split(":"):
        seconds = seconds * 60 + int(part)
    return seconds


def parse_size(text):
    """Return the kb of ``4gb``, ``512mb``, ``100`` (bytes) or ``10mw`` (words of 8 bytes), rounded up. Raises
    ValueError."""
    match = re.fullmatch(r"([0-9]{1,15})([kmgtp]?)([bw]?)", str(text), re.ASCII | re.IGNORECASE)
    if not match:
        raise ValueError(f"{text!r} is not a size")
    number, unit, word = match[1], match[2].lower(), match[3].lower()
    size = int(number) * (8 if word == "w" else 1) << SIZE_UNITS[unit]
    return -(-size // 1024)


def format_time(seconds):
    """Return ``HH:MM:SS``."""
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"


def value_of(kind, text):
    """Return the value of `text` by its type: int, kb for a size, seconds for a time, bits/s for a rate, bytes for a
    memory. Raises ValueError."""
    if kind == "int":
        if not re.fullmatch("[0-9]{1,9}", text):
            raise ValueError
        return int(text)
    if not text:
        raise ValueError
    if kind == "rate":
        from handson.cluster.virtual_nodes import bits_per_second

        return bits_per_second(text)
    if kind == "memory":
        return bytes_of(text)
    return {"size": parse_size, "time": parse_time, "text": str}[kind](text)


def parse_select(text):
    """Return the chunks of a select statement, in order: ``[{"count": 2, "ngpus": 2, "mpiprocs": 2, "ncpus": 1},
    ...]``."""
    chunks = []
    for part in text.split("+"):
        count, *items = part.split(":")
        if not re.fullmatch("[0-9]{1,6}", count):
            items.insert(0, count)
            count = "1"
        chunk = {"count": int(count)}
        for item in items:
            name, equals, value = item.partition("=")
            if not equals or not value or re.search(r"\s", item):
                raise illegal_value("Resource_List.select")
            if name not in CHUNK:
                if name in JOB:
                    raise PBSError(f'Resource invalid in "select" specification: {name}', 4)
                raise unknown_resource(name, chunk=True)
            if name in chunk:
                raise PBSError(
                    f"duplicated resource within a section of a select specification, resource is: {name}", 12
                )
            try:
                chunk[name] = value_of(CHUNK[name], value)
            except ValueError:
                raise illegal_value(f"select.{name}") from None
        if chunk["count"] == 0:
            raise illegal_value()
        chunk.setdefault("ncpus", 1)
        chunks.append(chunk)
    return chunks


def parse_place(text):
    """Return (arrangement, sharing) of ``-l place``: ("free" | "pack" | "scatter", "" | "shared" | "excl").

    A text resource either puts all nodes into one group here, or each node into its own; in the latter case PBS
    combines nodes of several groups.
    """
    arrangement, sharing = "", ""
    for word in text.split(":"):
        if word in ("free", "pack", "scatter", "vscatter") and not arrangement:
            arrangement = word.replace("vscatter", "scatter")
        elif word in ("shared", "excl", "exclhost") and not sharing:
            sharing = word.replace("exclhost", "excl")
        elif word.startswith("group=") and word != "group=":
            _check_group(word.removeprefix("group="))
        else:
            raise illegal_value("Resource_List.place")
    return arrangement or "free", sharing


def _check_group(resource):
    kind = (CHUNK | JOB).get(resource)
    if kind is None:
        raise unknown_resource("place", hint=f"no resource is called {resource}, by whose value nodes could be grouped")
    if kind != "text":
        raise not_a_text("place", hint=f"nodes cannot be grouped by {resource}, whose value is not text")


def parse_nodes(text):
    """Return select and place statements with the meaning of the older ``-l nodes=2:ppn=2``."""
    text, *suffixes = text.split("#")
    if not set(suffixes) <= {"excl", "shared"}:
        raise illegal_value("Resource_List.nodes")
    chunks = []
    for part in text.split("+"):
        count, *items = part.split(":")
        chunk = []
        if not re.fullmatch("[0-9]{1,6}", count):
            chunk, count = [f"host={count}"], "1"
        for item in items:
            name, equals, value = item.partition("=")
            if name in ("ppn", "cpp"):
                chunk += [f"ncpus={value}", f"mpiprocs={value}"] if name == "ppn" else [f"ncpus={value}"]
            elif equals:
                chunk.append(item)
            else:
                raise unknown_resource(name, chunk=True)
        chunks.append(
            ":".join([count, *(chunk if any(c.startswith("ncpus=") for c in chunk) else [*chunk, "ncpus=1"])])
        )
    return "+".join(chunks), "scatter" + (":" + suffixes[0] if suffixes else "")


def parse(asked, longest=None, strict=False):
    """Return a job's request, from its ``-l`` values `asked` (name -> text), as a dict with `chunks`, `arrangement`,
    `sharing`, `walltime` (seconds or None), and `listing`, the Resource_List that qstat shows.

    longest: the walltime of the queue as text, which is both the limit and the default. strict: refuse the resources
    that only the embedded PBS has.
    """
    asked = {name: text for name, text in asked.items() if text or name != "walltime"}
    if longest:
        asked.setdefault("walltime", longest)
    for name, text in asked.items():
        if name not in CHUNK and name not in JOB:
            raise unknown_resource(name)
        if strict and name in EMBEDDED:
            raise unknown_resource(name, hint=ONLY_EMBEDDED)
        kind = CHUNK.get(name) or JOB[name]
        try:
            if kind not in ("select", "place", "nodes"):
                value_of(kind, text)
        except ValueError:
            raise illegal_value(f"Resource_List.{name}", hint=HINTS.get(kind, "")) from None
    arrangement, sharing = parse_place(asked.get("place", "free"))
    for_node = [name for name in asked if name in CHUNK or name == "nodes"]
    if "select" in asked or "place" in asked:
        if for_node:
            raise PBSError(f'"-lresource=" cannot be used with "select" or "place", resource is: {for_node[0]}', 5)
        if "select" not in asked:
            raise PBSError('Cannot have "place" without "select"', 7)
        select, place = asked["select"], asked.get("place", "free")
    elif "nodes" in asked:
        select, place = parse_nodes(asked["nodes"])
    else:
        chunk = {"ncpus": "1"} | {name: asked[name] for name in for_node}
        select, place = "1:" + ":".join(f"{name}={value}" for name, value in chunk.items()), "pack"
    chunks = parse_select(select)
    arrangement, sharing = parse_place(place)
    listing = dict(asked) | {"select": select, "place": place, "nodect": str(sum(chunk["count"] for chunk in chunks))}
    for name in SUMMED:
        if any(name in chunk for chunk in chunks):
            total = sum(chunk["count"] * chunk.get(name, 0) for chunk in chunks)
            listing[name] = f"{total}kb" if CHUNK[name] == "size" else str(total)
    walltime = parse_time(asked["walltime"]) if "walltime" in asked else None
    if longest and walltime > parse_time(longest):
        raise walltime_limit(longest)
    if walltime is not None:
        listing["walltime"] = format_time(walltime)
    return {
        "chunks": chunks,
        "arrangement": arrangement,
        "sharing": sharing,
        "walltime": walltime,
        "listing": dict(sorted(listing.items())),
    }
