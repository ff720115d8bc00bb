"""Fit the job scripts to a site: ``python -m handson site list|show|use``. A site is described by a file of jobs/sites.

`use` rewrites the lines of the job scripts that are the same for everybody at a site. Lines between the markers of a gap stay as they
are, and so do all directives of an exercise that are for students to write: for these it says what the site wants to hear.
"""

import os
import re
import stat
import tomllib
from dataclasses import dataclass

from handson.errors import OneSentence
from handson.files import written_aside
from handson.pbs import site as pbs_site
from handson.pbs.errors import PBSError

JOBS = pbs_site.SITES.parent
WORD = r"[A-Za-z0-9_][A-Za-z0-9_.@/+-]*"  # what may go into a shell script as it is
BEGIN, END = "# For the site {} (python -m handson site use)\n", "# Up to here it is for the site\n"


class SiteError(OneSentence, ValueError):
    """What is wrong with a site's name or file, or with a job script."""


@dataclass
class Site:
    """What job scripts need to know of a site; jobs/sites/reedbush.toml explains the keys."""

    name: str
    batch: str
    queue: str
    group: str | None
    walltime: str | None
    modules: list
    mpi: str
    interface: str | None
    nodes: int
    gpus: int  # of each node


def names():
    """The sites that there are, local first."""
    return sorted((path.stem for path in pbs_site.SITES.glob("*.toml")), key=lambda name: (name != "local", name))


def read(name):
    """The `Site` of this name. Raises SiteError."""
    path = pbs_site.SITES / f"{name}.toml"
    if name not in names():
        raise SiteError(f"there is no site {name!r} in {pbs_site.SITES}, but: {', '.join(names())}")
    try:
        machine = pbs_site.load(str(path))
    except PBSError as error:
        raise SiteError(error.sentence) from None
    values = tomllib.loads(path.read_text())

    def checked(key, value, pattern, wanted):
        if value is not None and not (isinstance(value, str) and re.fullmatch(pattern, value)):
            raise SiteError(f"site file {path} is not right: {key} = {value!r}, but it must be {wanted}")
        return value

    modules = values.get("modules", [])
    return Site(
        name,
        batch=checked("batch", values.get("batch", "embedded"), "embedded|pbs|slurm", "embedded, pbs or slurm"),
        queue=checked("queue", machine.queues[0], WORD, "a single word, or a list of such"),
        group=checked("group", machine.groups[0], WORD, "a single word, or a list of such") if "group" in values else None,
        walltime=checked("walltime", values.get("walltime"), r"\d+:\d\d:\d\d", "hours, minutes and seconds as in 00:10:00"),
        modules=[checked("modules", module, WORD, "a list of modules") for module in (modules if isinstance(modules, list) else [0])],
        mpi=checked("mpi", values.get("mpi", "environment"), "environment|site", "environment or site"),
        interface=checked("interface", values.get("interface"), WORD, "a network interface such as ib0"),
        nodes=len(machine.nodes),
        gpus=machine.nodes[0].ngpus,
    )


def fitted(text, site, gaps=True, directives=True):
    """A job script's `text`, fitted to `site`.

    gaps: leave what stands between the markers of a gap. directives: change #PBS and #SBATCH lines, rather than leave them all.
    """
    text = re.sub(rf"^{re.escape(BEGIN).replace(re.escape('{}'), '.*')}(?:.*\n)*?{re.escape(END)}", "", text, flags=re.MULTILINE)
    lines, in_gap = text.splitlines(keepends=True), False
    for number, line in enumerate(lines):
        in_gap = line.startswith("### BEGIN SOLUTION") or in_gap and not line.startswith("### END SOLUTION")
        if directives and not (in_gap and gaps):
            lines[number] = _directive(line, site)
    if commands := _commands(site):
        path_is_set = (number for number, line in enumerate(lines, 1) if line.startswith('export PATH="${PBS_O_PATH'))
        directives_end = (number for number, line in enumerate(lines, 1) if not line.startswith("#"))
        place = next(path_is_set, None) or next(directives_end, len(lines))
        lines[place:place] = [BEGIN.format(site.name), *commands, END]
    return "".join(lines)


def _directive(line, site):
    """One line of a script for `site`. What the site doesn't want stays behind a second #, for the next one that does."""
    option = line.lstrip("#")
    if option.startswith("PBS -q "):
        return f"#PBS -q {site.queue}\n"
    if option.startswith("PBS -W group_list="):
        return f"#PBS -W group_list={site.group}\n" if site.group else f"##{option}"
    if option.startswith("PBS -l select="):
        line = re.sub(r":ngpus=\d+", "", line)
        return re.sub(r"(:mpiprocs=(\d+))", r":ngpus=\2\1", line) if site.gpus else line
    if option.startswith("SBATCH --partition="):
        return f"#SBATCH --partition={site.queue}\n"
    if option.startswith("SBATCH --account="):
        return f"#SBATCH --account={site.group}\n" if site.group else f"##{option}"
    if option.startswith("SBATCH --gpus-per-node="):
        return f"{'#' if site.gpus else '##'}{option}"
    return line


def _commands(site):
    """The shell commands that a job begins with at `site`."""
    commands = []
    if site.modules:
        commands += ["type module >/dev/null 2>&1 || . /etc/profile.d/modules.sh\n", f"module load {' '.join(site.modules)}\n"]
    if site.interface:
        commands.append(f"export GLOO_SOCKET_IFNAME={site.interface} NCCL_SOCKET_IFNAME={site.interface} HYDRA_IFACE={site.interface}\n")
    return commands


def use(name, gaps=True, say=print):
    """Fit all job scripts to the site `name`, and note it in jobs/sites/CHOSEN. Raises SiteError.

    Repeated, it changes nothing; interrupted, it has left every script whole, old or new. gaps: see `fitted`.
    """
    site = read(name)
    course = JOBS.parent
    scripts = [path for place in ("jobs/pbs", "jobs/slurm", "solutions/*", "exercises/*") for path in course.glob(f"{place}/*.sh")]
    try:
        for path in sorted(path for path in scripts if not path.is_symlink()):
            text = path.read_text()
            if (new := fitted(text, site, gaps, directives=not _students_write(path, text))) != text:
                _replace(path, new)
                say(f"changed {path.relative_to(course)}")
        _replace(pbs_site.CHOSEN, f"{name}\n")
    except UnicodeDecodeError:
        raise SiteError(f"{path} is not a text: put the job script right") from None
    except OSError as error:
        raise SiteError(f"{error.filename} cannot be changed ({error.strerror})") from None
    say(f"The site is now {name}. Write into the gaps of job scripts what it wants to hear:" if gaps else f"The site is now {name}:")
    show(name, say)


def _students_write(path, text):
    """Whether the directives of a script are a gap of an exercise, filled or not; then its solution has them between markers."""
    if path.parent.parent != JOBS.parent / "exercises":
        return False
    solution = JOBS.parent / "solutions" / path.parent.name / path.name
    return "PUT YOUR CODE" in text or solution.exists() and "### BEGIN SOLUTION" in solution.read_text()


def _replace(path, text):
    """Give a file another content, at once, and leave it the permissions it has."""
    with written_aside(path) as file:
        file.write(text.encode())
        if path.exists():
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))


def show(name=None, say=print):
    """Say what the site `name` (default: the chosen one) wants to hear, and what it has."""
    site = read(name or pbs_site.chosen())
    sbatch = site.batch == "slurm"
    facts = {
        "queue": f"#PBS -q {site.queue}" + f"    (sbatch: #SBATCH --partition={site.queue})" * sbatch,
        "group": f"#PBS -W group_list={site.group}" + f"    (sbatch: #SBATCH --account={site.group})" * sbatch,
        "walltime": f"{site.walltime} at most",
        "nodes": f"{site.nodes} at most",
        "GPUs": f"{site.gpus} in each node",
        "mpiexec": f"the {site.mpi}'s",
    }
    if not site.group:
        facts["group"] = "none: write no line -W group_list"
    if not site.walltime:
        del facts["walltime"]
    if not site.gpus:
        facts["GPUs"] = "none: write no ngpus"
    for key, fact in facts.items():
        say(f"  {key:10}{fact}")


def show_all(say=print):
    """Say which sites there are; the chosen one has a star."""
    for name in names():
        site = read(name)
        nodes = f"{site.nodes} node{'s' * (site.nodes != 1)} with {site.gpus} GPU{'s' * (site.gpus != 1)}"
        say(f"{'*' if name == pbs_site.chosen() else ' '} {name:12}{site.batch:10}queue {site.queue}, {nodes}")
