"""Sites: the descriptions of machines, queues and groups in jobs/sites/. jobs/sites/reedbush.toml explains the keys.

The embedded PBS presents the machine of a site, and `handson.cluster.job_scripts` adapts job scripts to it. Batch
commands read their site with this module, so it imports only the standard library.
"""

import contextlib
import contextvars
import os
import re
from collections import namedtuple
from pathlib import Path

from handson.errors import OneSentence
from handson.files import COURSE
from handson.sizes import bytes_of
from handson.tables import known, table, text
from handson.words import counted

SITES = COURSE / "jobs/sites"
CHOSEN = "CHOSEN"  # the file in jobs/sites with the name of the site that `python -m handson site use` has chosen
WORD = r"[A-Za-z0-9_][A-Za-z0-9_.@/+-]*"  # words that are safe in a shell script without quotes
KEYS = (
    "batch",
    "queue",
    "group",
    "walltime",
    "modules",
    "mpi",
    "interface",
    "kill_delay",
    "strict",
    "drop",
    "machine",
    "exercises",
    "kubernetes",
)
OF_MACHINE = ("nodes", "name", "gpus", "ncpus", "mem", "network", "gpu_memory")
OF_EXERCISES = ("nodes", "gpus")
OF_KUBERNETES = (
    "context",
    "namespace",
    "image",
    "cpus",
    "memory",
    "gpu_resource",
    "size",
    "storage_class",
    "nfs",
    "host_path",
    "grades",
)
VOLUMES = ("storage_class", "nfs", "host_path")


class SiteError(OneSentence, ValueError):
    """A site's name or file, or a job script, is wrong."""


class Kubernetes(namedtuple("Kubernetes", OF_KUBERNETES)):
    """The Kubernetes settings of a site's file.

    context: kubectl's context. image: the course's image, under the name that the nodes pull. cpus, memory: the
    resources of each process. gpu_resource: the resource name of a GPU. size: the size of the shared volume.
    storage_class, nfs ("server:/path"), host_path: the volume's source; exactly one of them is set, the others are
    None. grades: the source of the grader's volume, as nfs or host_path, or None for a storage class.
    """

    __slots__ = ()


class Site(
    namedtuple(
        "Site",
        "name batch queues groups walltime modules mpi interface kill_delay strict drop nodes node_name gpus ncpus mem"
        " network gpu_memory exercise_nodes exercise_gpus kubernetes",
    )
):
    """The content of a site's file, with defaults for missing keys. It does not depend on the machine that reads the
    file.

    queues, groups: tuples of names; if there are no groups, users need none. walltime, interface: None if the file does
    not set them. kill_delay: seconds between TERM and KILL. strict: whether the embedded PBS has only the features of
    an OpenPBS release. drop: the folder where students hand in, or None. nodes: their number; their names are node_name
    and a number. gpus, ncpus: the numbers per node. mem: kB of each node, or None. network: the rate of each node's
    network, such as "100mbit", or "none". gpu_memory: the memory of each virtual GPU, such as "300MB", or None.
    exercise_nodes, exercise_gpus: the number of nodes, and of GPUs per node, in the multi-node exercises; without GPUs,
    exercise_gpus is the number of processes per node. kubernetes: a Kubernetes, or None.
    """

    __slots__ = ()

    @property
    def queue(self):
        """Return the default queue of jobs."""
        return self.queues[0]

    @property
    def group(self):
        """Return the group in job scripts, or None if they need none."""
        return self.groups[0] if self.groups else None


def names():
    """Return the names of all sites, local first."""
    return sorted((path.stem for path in SITES.glob("*.toml")), key=lambda name: (name != "local", name))


_instead = contextvars.ContextVar("instead", default=None)


@contextlib.contextmanager
def as_chosen(name):
    """Context manager in which the site of this name counts as chosen. With None, nothing changes."""
    token = _instead.set(name or _instead.get())
    try:
        yield
    finally:
        _instead.reset(token)


def chosen():
    """Return the name of the chosen site; local if none was chosen."""
    if _instead.get():
        return _instead.get()
    try:
        return (SITES / CHOSEN).read_text().strip() or "local"
    except (OSError, UnicodeDecodeError):
        return "local"


def path_of(name=None):
    """Return the path of the site file that HANDSON_SITE (or `name`) names, as a path or a name in jobs/sites; by
    default, that of the chosen site."""
    name = name or os.environ.get("HANDSON_SITE") or chosen()
    if os.sep in name or name.endswith(".toml"):
        return str(Path(name).expanduser().absolute())
    return str(SITES / f"{name}.toml")


def read(name):
    """Return the `Site` of this name in jobs/sites. Raises SiteError."""
    if name not in names():
        raise SiteError(f"there is no site {name!r} in {SITES}; available: {', '.join(names())}")
    return load(str(SITES / f"{name}.toml"))


def for_exercises(name):
    """Read a site like `read`, and refuse a machine that is too small for the exercises. Raises SiteError."""
    site = read(name)
    if site.nodes < site.exercise_nodes or 0 < site.gpus < site.exercise_gpus:
        raise SiteError(
            f"the site {name} has {counted(site.nodes, 'node')} with {counted(site.gpus, 'GPU')}, and the exercises use"
            f" {counted(site.exercise_nodes, 'node')} with {counted(site.exercise_gpus, 'GPU')}: correct [machine] or"
            f" [exercises] in {SITES / name}.toml"
        )
    return site


def load(path=None):
    """Return the `Site` that the file `path` (default: the result of `path_of`) describes. Raises SiteError."""
    import tomllib

    from handson.pbs.pbs_errors import PBSError

    path = path or path_of()
    try:
        # then the defaults, which local.toml contains
        installed_without_jobs = path == str(SITES / "local.toml") and not os.path.exists(path)
        return _site(Path(path).stem, {} if installed_without_jobs else tomllib.loads(Path(path).read_text()))
    except OSError as error:
        cure = "correct HANDSON_SITE, or choose another one (python -m handson site use local)"
        raise SiteError(f"site file {path} cannot be read ({error.strerror}): {cure}") from None
    except (ValueError, PBSError) as error:  # errors of TOML and UTF-8 are ValueErrors
        raise SiteError(f"site file {path} is invalid ({error}): compare it with jobs/sites/local.toml") from None


def _site(name, values):
    from handson.pbs.resources import parse_size

    known(values, KEYS)
    machine, exercises = table(values, "machine", OF_MACHINE), table(values, "exercises", OF_EXERCISES)
    return Site(
        name=name,
        batch=text(values, "batch", "embedded", "embedded|pbs|slurm", "embedded, pbs or slurm"),
        queues=_words(values, "queue", "lecture"),
        groups=_words(values, "group") if "group" in values else (),
        walltime=text(values, "walltime", None, r"\d+:\d\d:\d\d", "hours, minutes and seconds as in 00:10:00"),
        modules=_modules(values.get("modules", [])),
        mpi=text(values, "mpi", "environment", "environment|site", "environment or site"),
        interface=text(values, "interface", None, WORD, "a network interface such as ib0"),
        kill_delay=_seconds(values, "kill_delay", 10),
        strict=_flag(values, "strict"),
        drop=text(values, "drop", None, r"/[^\x00-\x1f]+", "the absolute path of a folder"),
        nodes=_number(machine, "nodes", 2, least=1),
        node_name=text(machine, "name", "node", r"[a-z][a-z0-9-]{0,30}", "a word of small letters"),
        gpus=_number(machine, "gpus", 2),
        ncpus=_number(machine, "ncpus", 2, least=1),
        mem=parse_size(machine["mem"]) if "mem" in machine else None,
        network=_rate(machine, "network", "none"),
        gpu_memory=_memory(machine, "gpu_memory"),
        exercise_nodes=_number(exercises, "nodes", 2, least=2),
        exercise_gpus=_number(exercises, "gpus", 2, least=2),
        kubernetes=_kubernetes(table(values, "kubernetes", OF_KUBERNETES)) if "kubernetes" in values else None,
    )


def _kubernetes(values):
    chosen = [key for key in VOLUMES if key in values]
    if len(chosen) != 1:
        raise ValueError(
            f"[kubernetes] names {' and '.join(chosen) or 'no volume'}, but it must have one of {', '.join(VOLUMES)}"
        )
    name, quantity, of_nfs, of_nodes = (
        r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?",
        r"\d+(Mi|Gi|Ti)",
        r"[\w.-]+:/[\w./-]*",
        r"/[\w./-]+",
    )
    shared = values.get("nfs") or values.get("host_path")
    if shared and _below(values.get("grades"), shared):
        raise ValueError(
            f"grades = {values['grades']!r} is inside {shared!r}, which all students see: name a folder outside it"
        )
    return Kubernetes(
        context=text(
            values, "context", None, r"[\w.:/@+-]+", "a context of kubectl: `kubectl config get-contexts` lists them"
        ),
        namespace=text(values, "namespace", "handson", name, "the name of a namespace, in small letters"),
        image=text(
            values,
            "image",
            "localhost/handson:1",
            r"[\w.:/@-]+",
            "the name of an image, such as registry.example/handson:1",
        ),
        cpus=_number(values, "cpus", 1, least=1),
        memory=text(values, "memory", "2Gi", quantity, "a size such as 2Gi"),
        gpu_resource=text(values, "gpu_resource", "nvidia.com/gpu", WORD, "a resource such as nvidia.com/gpu"),
        size=text(values, "size", "10Gi", quantity, "a size such as 10Gi"),
        storage_class=text(
            values, "storage_class", None, name, "a storage class: `kubectl get storageclass` lists them"
        ),
        nfs=text(values, "nfs", None, of_nfs, "a server and its folder, such as fs-0123.efs.eu-west-1.amazonaws.com:/"),
        host_path=text(values, "host_path", None, of_nodes, "the absolute path of a folder on the nodes"),
        grades=text(
            values, "grades", None, f"{of_nfs}|{of_nodes}", "as nfs or host_path, a folder for the grader alone"
        ),
    )


def _below(path, folder):
    """Return whether "server:/path" or "/path" is a folder or below it, even if it is written with //, /./ or /../."""
    (host, _, path), (other, _, folder) = (str(one).rpartition(":") for one in (path, folder))
    path, folder = (Path(os.path.normpath("/" + one.lstrip("/"))) for one in (path, folder))
    return host == other and path.is_relative_to(folder)


def _words(table, key, default=None):
    value = table.get(key, default)
    words = [value] if isinstance(value, str) else value
    if (
        not isinstance(words, list)
        or not words
        or not all(isinstance(word, str) and re.fullmatch(WORD, word) for word in words)
    ):
        raise ValueError(f"{key} = {value!r}, but it must be a single word, or a list of such")
    return tuple(words)


def _modules(value):
    if not isinstance(value, list):
        raise ValueError(f"modules = {value!r}, but it must be a list of modules")
    return tuple(text({"modules": module}, "modules", None, WORD, "a list of modules") for module in value)


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


def _flag(table, key):
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"{key} = {value!r}, but it must be true or false")
    return value


def _rate(table, key, default):
    value = table.get(key, default)
    if value != "none":
        from handson.cluster.virtual_nodes import bits_per_second

        bits_per_second(value)
    return value


def _memory(table, key):
    value = table.get(key)
    if value is not None:
        bytes_of(value)
    return value
