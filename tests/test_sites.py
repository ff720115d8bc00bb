"""Sites: what their files say, how `python -m handson site use` fits the job scripts, and that these ask for nothing
but real PBS."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from handson.cluster import job_scripts, site

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted(path for place in ("jobs/pbs", "solutions/*") for path in ROOT.glob(f"{place}/*.sh"))
FILLED = (
    "#!/bin/bash\n#PBS -q h-lecture\n#PBS -l select=1:mpiprocs=2\n#PBS -N multi_gpu\n\ncd .\nexport"
    ' PATH="${PBS_O_PATH:-$PATH}"\npython x.py\n'
)
SITE = (
    'batch = "pbs"\nqueue = ["first", "second"]\nmodules = ["cuda/12.4", "nccl"]\ninterface = "ib0"\n[machine]\nnodes ='
    " 8\ngpus = 0\n"
)


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A copy of the folders that `use` changes, with a site of its own: no group, no GPUs, modules, an interface."""
    shutil.copytree(ROOT / "jobs", tmp_path / "jobs")
    (tmp_path / "jobs/sites/CHOSEN").unlink(missing_ok=True)
    for path in SCRIPTS:
        place = tmp_path / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    (tmp_path / "jobs/sites/bare.toml").write_text(SITE)
    (tmp_path / "exercises/02_multi_gpu").mkdir(parents=True)
    (tmp_path / "exercises/02_multi_gpu/run_multi_gpu_training.sh").write_text(FILLED)
    (tmp_path / "exercises/02_multi_gpu/given.sh").write_text(
        "#!/bin/bash\n#PBS -q lecture\n#PBS -W group_list=gt00\necho\n"
    )
    monkeypatch.setattr(site, "SITES", tmp_path / "jobs/sites")
    return tmp_path


def contents(course):
    return {path.relative_to(course): path.read_bytes() for path in course.rglob("*.sh")}


def use(name, **options):
    said = []
    job_scripts.use(name, say=said.append, **options)
    return "\n".join(said)


def directives(text):
    return re.findall(r"^#PBS .*$", text, re.MULTILINE)


@pytest.mark.parametrize("name", ["local", "pbs", "reedbush", "slurm"])
def test_every_site_of_the_course_can_be_read(name):
    assert site.read(name).name == name
    assert site.load(str(ROOT / f"jobs/sites/{name}.toml")).nodes


def test_the_job_scripts_are_those_of_the_local_site():
    for path in SCRIPTS:
        assert job_scripts.fitted(path.read_text(), site.read("local"), gaps=False) == path.read_text()


def test_lines_outside_of_gaps_become_those_of_the_site(course):
    use("bare")
    text = (course / "jobs/pbs/run_network.sh").read_text()
    assert {"#PBS -q first", "#PBS -l select=2:mpiprocs=1:ompthreads=1", "#PBS -l place=scatter"} <= set(
        directives(text)
    )
    assert not re.search("^#PBS -W", text, re.MULTILINE), "the site has no groups"
    given = (course / "exercises/02_multi_gpu/given.sh").read_text()
    assert directives(given) == ["#PBS -q first"]


def test_gaps_stay_and_their_facts_are_told(course):
    before = (course / "solutions/03_multi_node/run_multi_node_training.sh").read_text()
    said = use("bare")
    after = (course / "solutions/03_multi_node/run_multi_node_training.sh").read_text()
    assert directives(after) == directives(before)
    facts = dict(re.findall(r"^  (\w+) +(.*)$", said, re.MULTILINE))
    assert facts["queue"] == "#PBS -q first" and facts["nodes"] == "8 at most"
    assert facts["group"].startswith("none") and facts["GPUs"].startswith("none")
    assert dict(re.findall(r"^  (\w+) +(.*)$", use("reedbush"), re.MULTILINE)) == {
        "queue": "#PBS -q h-lecture",
        "group": "#PBS -W group_list=gt00",
        "walltime": "00:10:00 at most",
        "nodes": "4 at most",
        "GPUs": "2 in each node",
        "exercises": "use 2 nodes, and 2 GPUs in each",
        "mpiexec": "the environment's",
    }


def test_a_new_site_waits_for_the_jobs_of_the_old_one_and_says_so(course, monkeypatch):
    last = (
        "Unfinished jobs are of the site slurm: until they have ended (qstat), the queue and its nodes stay as they"
        " are."
    )
    monkeypatch.setattr(job_scripts.store, "site_in_force", lambda db: str(course / "jobs/sites/slurm.toml"))
    assert use("bare").splitlines()[-1] == last
    assert last not in use("slurm")


def test_what_students_wrote_into_a_job_script_stays(course):
    """Their markers are gone then; the original has them."""
    path = course / "exercises/02_multi_gpu/run_multi_gpu_training.sh"
    use("slurm")
    assert path.read_text() == FILLED
    use("bare")
    assert directives(path.read_text()) == directives(FILLED)
    unfilled = FILLED.replace("h-lecture", "(queue)").replace("\n#PBS -q", "\n# PUT YOUR CODE: the queue\n#PBS -q")
    path.rename(path.with_name("another.sh")).write_text(unfilled)
    use("local")
    assert path.with_name("another.sh").read_text() == unfilled


def test_a_job_loads_the_modules_before_it_looks_for_the_launcher(course):
    """Whatever the modules put on PATH comes before the environment; a script with them is still a script."""
    use("bare")
    for path in course.rglob("*.sh"):
        text, is_job_script = path.read_text(), not {"classroom", "ipyparallel"} & set(path.relative_to(course).parts)
        assert (
            text.count("module load cuda/12.4 nccl\n") == text.count("export GLOO_SOCKET_IFNAME=ib0 ") == is_job_script
        )
        assert subprocess.run(["bash", "-n", path]).returncode == 0
    text = (course / "solutions/03_multi_node/run_multi_node_training.sh").read_text()
    assert text.index("export PATH") < text.index("module load") < text.index("handson-launcher")


@pytest.mark.parametrize("gaps", [True, False])
def test_it_can_be_repeated_and_taken_back(course, gaps):
    original = contents(course)
    use("bare", gaps=gaps)
    once = contents(course)
    assert "changed" not in use("bare", gaps=gaps) and contents(course) == once != original
    use("reedbush", gaps=gaps)
    assert contents(course) not in (once, original)
    use("local", gaps=gaps)
    assert contents(course) == original


def test_the_chosen_site_is_remembered_and_is_the_embedded_ones(course, monkeypatch):
    monkeypatch.delenv("HANDSON_SITE", raising=False)
    said = []
    assert site.load().queues == ("lecture",)
    use("bare")
    assert (course / "jobs/sites/CHOSEN").read_text() == "bare\n"
    assert site.load().queues == ("first", "second") and site.load().nodes == 8
    job_scripts.show_all(said.append)
    assert [line.split()[1] for line in said if line.startswith("*")] == ["bare"]
    monkeypatch.setenv("HANDSON_SITE", "reedbush")
    assert site.load().queues == ("h-lecture",)


@pytest.mark.parametrize("name", ["nosuch", "../sites/local", "", "CHOSEN"])
def test_an_unknown_site_changes_nothing_and_is_answered_with_the_list(course, name):
    original = contents(course)
    with pytest.raises(site.SiteError, match=f"available: local, bare, .*{site.names()[-1]}$"):
        use(name)
    assert contents(course) == original and not (course / "jobs/sites/CHOSEN").exists()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('queue = "a; rm -rf ~"', "queue = 'a; rm -rf ~'"),
        ('group = "$(id)"', r"group = '\$\(id\)'"),
        ('modules = "cuda"', "modules = .*a list"),
        ('modules = ["cuda; true"]', "modules = 'cuda; true'"),
        ('mpi = "intel"', "mpi = 'intel', but it must be environment or site"),
        ('walltime = "ten minutes"', "walltime = 'ten minutes'"),
        ('interface = "ib0 && x"', "interface"),
        ("queue = ", "bare.toml is invalid"),
        ('grup = "cs101"', "there is no key 'grup': did you mean 'group'"),
        ("exercises = 4", r"exercises = 4, but it must be a table: a line \[exercises\]"),
        ("exercises = { gpus = 1 }", "gpus = 1, but it must be a whole number, 2 or more"),
        ("exercises = { nodes = 9 }", "has 8 nodes with 0 GPUs, and the exercises use 9 nodes with 2 GPUs: correct"),
    ],
)
def test_a_wrong_site_file_is_refused_with_what_is_wrong(course, line, problem):
    """Nothing of it may get into a shell script."""
    kept = [other for other in SITE.splitlines() if other.split()[0] != line.split()[0]]
    (course / "jobs/sites/bare.toml").write_text("\n".join([line, *kept]) + "\n")
    original = contents(course)
    with pytest.raises(site.SiteError, match=problem):
        use("bare")
    assert contents(course) == original


WIDE = (
    'batch = "pbs"\nqueue = "edu"\ngroup = "cs101"\n[machine]\nnodes = 3\ngpus = 4\n[exercises]\nnodes = 3\ngpus = 4\n'
)


def test_a_site_says_how_many_nodes_and_gpus_the_exercises_use(course):
    (course / "jobs/sites/wide.toml").write_text(WIDE)
    original = contents(course)
    said = use("wide", gaps=False)
    assert "exercises use 3 nodes, and 4 GPUs in each" in said
    training = {
        unit: (course / f"solutions/{unit}/run_{unit[3:]}_training.sh").read_text()
        for unit in ("01_single_gpu", "02_multi_gpu", "03_multi_node")
    }
    selects = {unit: re.search("#PBS -l (select=.*)", text)[1] for unit, text in training.items()}
    assert selects == {
        "01_single_gpu": "select=1:ngpus=1:mpiprocs=1:ompthreads=1",
        "02_multi_gpu": "select=1:ngpus=4:mpiprocs=4:ompthreads=1",
        "03_multi_node": "select=3:ngpus=4:mpiprocs=4:ompthreads=1",
    }
    assert [" -g 0,1,2,3 $OPTIONS" in text for text in training.values()] == [False, True, False], (
        "mpiexec gives each rank its GPU"
    )
    assert "select=3:ngpus=1:mpiprocs=1" in (course / "jobs/pbs/run_network.sh").read_text()
    use("local", gaps=False)
    assert contents(course) == original


def test_list_and_show_say_which_sites_use_refuses(course):
    """A site that can't be used doesn't hide the ones behind it."""
    (course / "jobs/sites/bare.toml").write_text("queue = 7\n")
    (course / "jobs/sites/more.toml").write_text("[machine]\nnodes = 3\n[exercises]\nnodes = 4\n")
    said = []
    job_scripts.show_all(said.append)
    assert [line[2:].split()[0] for line in said] == site.names()
    lines = {line[2:].split()[0]: line for line in said}
    assert "refused" in lines["bare"]
    assert "queue = 7" in lines["bare"]
    assert "refused" in lines["more"]
    assert "queue lecture" in lines["slurm"] + lines["pbs"]
    with pytest.raises(site.SiteError, match="has 3 nodes with 2 GPUs, and the exercises use 4 nodes"):
        job_scripts.show("more")


def test_the_command_ends_with_a_sentence():
    command = [sys.executable, "-m", "handson", "site", "use", "nosuch"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"handson site: there is no site 'nosuch' in \S+; available: local, [^\n]+\n", done.stderr)


# What a real PBS takes -----------------------------------------------------------

BY_PBS = {  # what a real PBS gives a job (beside PBS_O_...), seen in OpenPBS 23.06
    "PBS_ENVIRONMENT",
    "PBS_JOBCOOKIE",
    "PBS_JOBDIR",
    "PBS_JOBID",
    "PBS_JOBNAME",
    "PBS_MOMPORT",
    "PBS_NODEFILE",
    "PBS_NODENUM",
    "PBS_QUEUE",
    "PBS_TASKNUM",
    "NCPUS",
    "OMP_NUM_THREADS",
}
BY_PBS_O = {
    f"PBS_O_{name}" for name in ("HOME", "HOST", "LOGNAME", "PATH", "QUEUE", "SHELL", "SYSTEM", "WORKDIR", "MAIL")
}
# by the student with -v, or by every shell
GIVEN = {"TRACK", "OPTIONS", "PROFILE", "SCRIPT", "NAME", "PATH", "HOME", "PWD", "RANKS", "RUN"}
# Resources that PBS Professional and OpenPBS know by themselves, and ngpus, which sites with GPUs add. None of the
# embedded PBS's own.
CHUNK, JOB_WIDE = {"ncpus", "ngpus", "mem", "mpiprocs", "ompthreads"}, {"select", "place", "walltime"}


@pytest.fixture(params=SCRIPTS, ids=lambda path: path.name)
def script(request):
    return request.param.read_text()


def test_a_script_asks_for_resources_of_a_real_pbs_only(script):
    for line in re.findall("^#PBS -l +(.*)$", script, re.MULTILINE):
        name, value = line.split("=", 1)
        assert name in JOB_WIDE
        if name == "select":
            assert {chunk.split("=")[0] for chunk in value.split(":")[1:]} <= CHUNK


def test_a_script_uses_variables_that_a_real_pbs_sets(script):
    """Without `-V`, a real job has no variable of the shell it was submitted from."""
    commands = re.sub(r"^#.*$", "", script, flags=re.MULTILINE)
    used, set_here = (
        set(re.findall(r"\$\{?([A-Za-z_]\w*)", commands)),
        {name for names in re.findall(r"(?:^|\s)(\w+)=|\bfor (\w+) in", commands) for name in names},
    )
    assert used <= BY_PBS | BY_PBS_O | GIVEN | set_here


def test_a_script_starts_as_many_ranks_as_it_has_mpi_processes(script):
    """PBS writes a line for each into the node file."""
    for ranks in re.findall(r"^ *mpiexec -n (.*?) -hostfile", script, re.MULTILINE):
        assert ranks == '$(wc -l <"$PBS_NODEFILE")'
    assert script.count("mpiexec -n ") == len(re.findall("^ *mpiexec -n ", script, re.MULTILINE))
