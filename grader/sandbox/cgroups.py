"""Limit memory and processes of all ranks together with a control group around sandboxes (cgroups(7), versions 1 and
2).

It is used only if this user may create groups. Creating a group removes older groups whose first process has ended.
"""

import errno
import os
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
NAME = "handson-sandboxes-"
MEMORY = {1: "memory.limit_in_bytes", 2: "memory.max"}


def places():
    """Return [(folder in which this process may create groups, version of cgroups)]. Raises OSError if there are
    none."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own |= {controller: path.lstrip("/") for controller in controllers.split(",")}
    if "memory" in own and "pids" in own:
        found = [(MOUNT / controller / own[controller], 1) for controller in ("memory", "pids")]
    else:
        parent = (MOUNT / own.get("", "")).parent  # a group that has processes cannot contain groups with limits
        if not {"memory", "pids"} <= set((parent / "cgroup.subtree_control").read_text().split()):
            raise PermissionError(errno.EPERM, "memory and pids are not delegated", str(parent))
        found = [(parent, 2)]
    for folder, _ in found:
        if not os.access(folder, os.W_OK) or not os.access(folder / "cgroup.procs", os.W_OK):
            raise PermissionError(errno.EACCES, "no groups may be created", str(folder))
    return found


def join(memory_bytes, processes):
    """Move this process, and all processes that it starts later, into a new group."""
    for folder, version in places():
        _remove_old(folder)
        group = folder / f"{NAME}{os.getpid()}"
        group.mkdir(exist_ok=True)  # left by an earlier process with the same number
        if (group / MEMORY[version]).exists():
            (group / MEMORY[version]).write_text(str(memory_bytes))
        if (group / "pids.max").exists():
            (group / "pids.max").write_text(str(processes))
        (group / "cgroup.procs").write_text("0")


def _remove_old(folder):
    """Remove old groups in `folder`, and in its siblings, because each session of a user may have its own folder."""
    for group in folder.parent.glob(f"*/{NAME}*"):
        if not Path("/proc", group.name.removeprefix(NAME)).exists():
            try:
                group.rmdir()
            except OSError:  # another process has removed it, or its last process is still ending
                pass
