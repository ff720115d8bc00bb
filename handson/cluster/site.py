"""Sites: what the files in jobs/sites/ say of a machine, its queues and groups. jobs/sites/reedbush.toml explains the keys.

The embedded PBS presents the machine of a site, and `handson.cluster.job_scripts` fits job scripts to it. Batch commands read their
site with this module, so it needs the standard library only.
"""

import os
import re
from collections import namedtuple
from pathlib import Path

from handson.errors import OneSentence
from handson.files import COURSE

SITES = COURSE / "jobs/sites"
CHOSEN = "CHOSEN"  # the file there that holds the name of the site that `python -m handson site use` has chosen
WORD = r"[A-Za-z0-9_][A-Za-z0-9_.@/+-]*"  # words that are safe in a shell script without quotes
KEYS = ("batch", "queue", "group", "walltime", "modules", "mpi", "interface", "kill_delay", "machine")
OF_MACHINE = ("nodes", "gpus", "ncpus", "mem", "network", "gpu_memory")


class SiteError(OneSentence, ValueError):
    """What is wrong with a site's name or file, or with a job script."""


class Site(namedtuple("Site", "name batch queues groups walltime modules mpi interface kill_delay nodes gpus ncpus mem network gpu_memory")):
    """What a site's file says, with defaults for the rest; it does not depend on the machine that reads the file.

    queues, groups: tuples of names; without groups, users need none. walltime, interface: None where the file says nothing.
    kill_delay: seconds between TERM and KILL. nodes: how many; gpus, ncpus: of each node. mem: kB of each node, or None. network: the
    rate of each node's network, such as "100mbit", or "none". gpu_memory: of each virtual GPU, such as "300MB", or None.
    """

    __slots__ = ()

    @property
    def queue(self):
        """The queue of jobs that name none."""
        return self.queues[0]

    @property
    def group(self):
        """The group that job scripts name; None where they need none."""
        return self.groups[0] if self.groups else None


def names():
    """The sites that there are, local first."""
    return sorted((path.stem for path in SITES.glob("*.toml")), key=lambda name: (name != "local", name))


def chosen():
    """The name of the site that was chosen; local if none was."""
    try:
        return (SITES / CHOSEN).read_text().strip() or "local"
    except (OSError, UnicodeDecodeError):
        return "local"


def path_of(name=None):
    """The file that HANDSON_SITE (or `name`) names, a path or a name in jobs/sites; else that of the chosen site."""
    name = name or os.environ.get("HANDSON_SITE") or chosen()
    if os.sep in name or name.endswith(".toml"):
        return str(Path(name).expanduser().absolute())
    return str(SITES / f"{name}.toml")


def read(name):
    """The `Site` of this name in jobs/sites. Raises SiteError."""
    if name not in names():
        raise SiteError(f"there is no site {name!r} in {SITES}, but: {', '.join(names())}")
    return load(str(SITES / f"{name}.toml"))


def load(path=None):
    """The `Site` that the file `path` (default: what `path_of` finds) describes. Raises SiteError."""
    import tomllib

    from handson.pbs.errors import PBSError

    path = path or path_of()
    try:
        installed_without_jobs = path == str(SITES / "local.toml") and not os.path.exists(path)  # then local.toml's values: the defaults
        return _site(Path(path).stem, {} if installed_without_jobs else tomllib.loads(Path(path).read_text()))
    except OSError as error:
        cure = "correct HANDSON_SITE, or choose another one (python -m handson site use local)"
        raise SiteError(f"site file {path} cannot be read ({error.strerror}): {cure}") from None
    except (ValueError, PBSError) as error:  # errors of TOML and UTF-8 are ValueErrors, too
        raise SiteError(f"site file {path} is not right ({error}): compare it with jobs/sites/local.toml") from None


def _site(name, values):
    from handson.pbs.resources import parse_size

    machine = values.get("machine", {})
    if not isinstance(machine, dict):
        raise ValueError(f"machine = {machine!r}, but it must be a table: a line [machine], and its keys below")
    _known(values, KEYS)
    _known(machine, OF_MACHINE)
    return Site(
        name=name,
        batch=_text(values, "batch", "embedded", "embedded|pbs|slurm", "embedded, pbs or slurm"),
        queues=_words(values, "queue", "lecture"),
        groups=_words(values, "group") if "group" in values else (),
        walltime=_text(values, "walltime", None, r"\d+:\d\d:\d\d", "hours, minutes and seconds as in 00:10:00"),
        modules=_modules(values.get("modules", [])),
        mpi=_text(values, "mpi", "environment", "environment|site", "environment or site"),
        interface=_text(values, "interface", None, WORD, "a network interface such as ib0"),
        kill_delay=_seconds(values, "kill_delay", 10),
        nodes=_number(machine, "nodes", 2, least=1),
        gpus=_number(machine, "gpus", 2),
        ncpus=_number(machine, "ncpus", 2, least=1),
        mem=parse_size(machine["mem"]) if "mem" in machine else None,
        network=_rate(machine, "network", "none"),
        gpu_memory=_memory(machine, "gpu_memory"),
    )


def _known(table, keys):
    """Raises ValueError if the table has another key than these: what is mistyped would have no effect."""
    import difflib

    for key in table:
        if key not in keys:
            alike = difflib.get_close_matches(key, keys, 1)
            raise ValueError(f"there is no key {key!r}: {f'did you mean {alike[0]!r}?' if alike else 'the keys are ' + ', '.join(keys)}")


def _text(table, key, default, pattern, wanted):
    value = table.get(key, default)
    if key in table and not (isinstance(value, str) and re.fullmatch(pattern, value)):
        raise ValueError(f"{key} = {value!r}, but it must be {wanted}")
    return value


def _words(table, key, default=None):
    value = table.get(key, default)
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and re.fullmatch(WORD, word) for word in words):
        raise ValueError(f"{key} = {value!r}, but it must be a single word, or a list of such")
    return tuple(words)


def _modules(value):
    if not isinstance(value, list):
        raise ValueError(f"modules = {value!r}, but it must be a list of modules")
    return tuple(_text({"modules": module}, "modules", None, WORD, "a list of modules") for module in value)


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


def _memory(table, key):
    value = table.get(key)
    if value is not None:
        from handson.training.gpu_memory import bytes_of

        bytes_of(value)
    return value
