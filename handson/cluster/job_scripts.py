"""Adapt the job scripts to a site: ``python -m handson site list|show|use``.

`use` rewrites the lines of the job scripts that are the same for everybody at a site. Lines between the markers of a
gap stay unchanged, and so do all directives that students write in an exercise: for these, `use` prints the site's
requirements.
"""

import os
import re
import stat
from pathlib import Path

from handson.cluster import site as sites
from handson.cluster.site import SiteError
from handson.files import written_aside
from handson.language import marked, speak, translated
from handson.pbs import store
from handson.words import counted, ljust

WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
BEGIN, END = "# For the site {} (python -m handson site use)\n", "# Up to here it is for the site\n"


def fitted(text, site, gaps=True, directives=True):
    """Return the `text` of a job script, adapted to `site`.

    gaps: keep the lines between the markers of a gap. directives: change #PBS and #SBATCH lines instead of keeping all
    of them.
    """
    text = re.sub(
        rf"^{re.escape(BEGIN).replace(re.escape('{}'), '.*')}(?:.*\n)*?{re.escape(END)}", "", text, flags=re.MULTILINE
    )
    lines, in_gap = text.splitlines(keepends=True), False
    for number, line in enumerate(lines):
        in_gap = line.startswith("### BEGIN SOLUTION") or in_gap and not line.startswith("### END SOLUTION")
        if directives and not (in_gap and gaps):
            lines[number] = _directive(line, site)
    # one process that starts the others
    if directives and re.search(r"^#PBS -l select=1:.*mpiprocs=([2-9]|\d\d)", "".join(lines), re.MULTILINE):
        ids = f" -g {','.join(map(str, range(site.exercise_gpus)))}" * (site.exercise_gpus != 2)
        lines = [re.sub(r"^(python .*?)( -g [\d,]+)? \$OPTIONS$", rf"\1{ids} $OPTIONS", line) for line in lines]
    if commands := _commands(site):
        path_is_set = (number for number, line in enumerate(lines, 1) if line.startswith('export PATH="${PBS_O_PATH'))
        directives_end = (number for number, line in enumerate(lines, 1) if not line.startswith("#"))
        place = next(path_is_set, None) or next(directives_end, len(lines))
        lines[place:place] = [BEGIN.format(site.name), *commands, END]
    return "".join(lines)


def _directive(line, site):
    """Return one line of a script for `site`. A directive that the site does not need gets a second #, so that another
    site can restore it."""
    option = line.lstrip("#")
    if option.startswith("PBS -q "):
        return f"#PBS -q {site.queue}\n"
    if option.startswith("PBS -W group_list="):
        return f"#PBS -W group_list={site.group}\n" if site.group else f"##{option}"
    if option.startswith("SBATCH --partition="):  # the job scripts in jobs/ipyparallel/slurm have it
        return f"#SBATCH --partition={site.queue}\n"
    if option.startswith("SBATCH --account="):
        return f"#SBATCH --account={site.group}\n" if site.group else f"##{option}"
    if option.startswith("PBS -l select="):
        line = re.sub(r":ngpus=\d+", "", line)
        line = re.sub(r"(select=)(?!1\b)\d+", rf"\g<1>{site.exercise_nodes}", line)
        line = re.sub(r"(:mpiprocs=)(?!1\b)\d+", rf"\g<1>{site.exercise_gpus}", line)
        return re.sub(r"(:mpiprocs=(\d+))", r":ngpus=\2\1", line) if site.gpus else line
    return line


def for_students(text, site=None):
    """Return the `text` of a job script, adapted to `site` (default: the chosen one). The hint of its gap then asks for
    the site's resources: no group if it needs none, no GPUs if it has none, and the number of nodes and GPUs that the
    exercises use."""
    site = site or sites.read(sites.chosen())
    nodes, gpus = (
        WORDS[number] if number < len(WORDS) else str(number) for number in (site.exercise_nodes, site.exercise_gpus)
    )
    lines = fitted(text, site).splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.startswith("### BEGIN SOLUTION"):
            line = line.replace("two nodes", f"{nodes} nodes").replace("with two", f"with {gpus}")
            line = line if site.gpus else re.sub(", (and )?a GPU( for each)?", "", line)
            lines[number] = line if site.group else line.replace("; the group", "")
        elif line.startswith("### GIVEN #PBS -W (group") and not site.group:
            lines[number] = ""
    return "".join(lines)


def _commands(site):
    """Return the shell commands with which a job starts at `site`."""
    commands = []
    if site.modules:
        commands += [
            "type module >/dev/null 2>&1 || . /etc/profile.d/modules.sh\n",
            f"module load {' '.join(site.modules)}\n",
        ]
    if site.interface:
        commands.append(
            f"export GLOO_SOCKET_IFNAME={site.interface} NCCL_SOCKET_IFNAME={site.interface}"
            f" HYDRA_IFACE={site.interface}\n"
        )
    return commands


def use(name, gaps=True, say=speak):
    """Adapt all job scripts to the site `name`, and store the name in jobs/sites/CHOSEN. Raises SiteError.

    A second call changes nothing. If it is interrupted, every script is complete, old or new. gaps: see `fitted`.
    """
    site, course, changed = sites.for_exercises(name), sites.SITES.parents[1], []
    scripts = [path for place in ("jobs/pbs", "solutions/*", "exercises/*") for path in course.glob(f"{place}/*.sh")]
    try:
        for path in sorted(path for path in scripts if not path.is_symlink()):
            text = path.read_text()
            if (new := fitted(text, site, gaps, directives=not _students_write(course, path, text))) != text:
                _replace(path, new)
                changed.append(f"changed {path.relative_to(course)}")
        _replace(sites.SITES / sites.CHOSEN, f"{name}\n")
    except UnicodeDecodeError:
        raise SiteError(f"{path} is not a text file: fix the job script") from None
    except OSError as error:
        raise SiteError(f"{error.filename} cannot be changed ({error.strerror})") from None
    for line in changed:  # printed last, because the reader may close the pipe, as `head` does
        say(line)
    say(
        f"The site is now {name}. Write into the gaps of job scripts what it needs:"
        if gaps
        else f"The site is now {name}:"
    )
    show(name, say)
    with store.reading() as db:
        in_force = store.site_in_force(db)
    if in_force not in (None, str(sites.SITES / f"{name}.toml")):
        say(
            f"Unfinished jobs are of the site {Path(in_force).stem}: until they have ended (qstat), the queue and its"
            " nodes stay as they are."
        )


def _students_write(course, path, text):
    """Return whether the directives of a script are a gap of an exercise, filled or not. If so, they are between
    markers in its solution."""
    if path.parent.parent != course / "exercises":
        return False
    solution = course / "solutions" / path.parent.name / path.name
    return "PUT YOUR CODE" in text or solution.exists() and "### BEGIN SOLUTION" in solution.read_text()


def _replace(path, text):
    """Replace the content of a file in one step, and keep its permissions."""
    with written_aside(path) as file:
        file.write(text.encode())
        if path.exists():
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))


def show(name=None, say=speak):
    """Print the requirements of job scripts at the site `name` (default: the chosen one), and the site's resources."""
    site = sites.for_exercises(name or sites.chosen())
    facts = marked(
        {
            "queue": f"#PBS -q {site.queue}",
            "group": (
                f"#PBS -W group_list={site.group}"
                + f"    (Slurm: sbatch -A {site.group} or qsub -A {site.group})" * (site.batch == "slurm")
            ),
            "walltime": f"{site.walltime} at most",
            "nodes": f"{site.nodes} at most",
            "GPUs": f"{site.gpus} in each node",
            "exercises": (
                f"use {site.exercise_nodes} nodes, and {site.exercise_gpus} GPUs in each"
                if site.gpus
                else f"use {site.exercise_nodes} nodes, and {site.exercise_gpus} processes in each"
            ),
            "mpiexec": {"environment": "the environment's", "site": "the site's"}[site.mpi],
        }
    )
    if not site.group:
        facts["group"] = "none: write no line -W group_list"
    if not site.walltime:
        facts["walltime"] = "as long as you ask for: there is no limit"
    if not site.gpus:
        facts["GPUs"] = "none: write no ngpus"
    for key, fact in facts.items():
        say(f"  {ljust(translated(key), 10)}" + translated(fact))


def show_all(say=speak):
    """List the sites. The chosen one has a star, and a site that `use` refuses has the reason."""
    for name in sites.names():
        try:
            site = sites.for_exercises(name)
            batch, facts = (
                site.batch,
                f"queue {site.queue}, {counted(site.nodes, 'node')} with {counted(site.gpus, 'GPU')}",
            )
        except SiteError as error:
            batch, facts = marked("refused"), str(error)
        chosen = "*" if name == sites.chosen() else " "
        say(f"{chosen} {name:12}{ljust(translated(batch), 10)}" + translated(facts))
