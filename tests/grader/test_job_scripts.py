"""Job scripts are run as jobs whose commands are stand-ins; what they ask for and start is held against the chosen
site."""

import re
import shutil
from pathlib import Path

import pytest

from grader import exercises, gaps
from grader.course import UNITS
from grader.exercises import solution
from grader.instructors import release
from grader.instructors.grade import digest
from grader.judging import judge
from grader.probes import loaded_for
from grader.sandbox import Server
from grader.verdict import NOT_ATTEMPTED, PASSED
from handson.cluster import job_scripts, site

ROOT = Path(__file__).resolve().parents[2]
BARE = 'batch = "pbs"\nqueue = ["first", "second"]\nwalltime = "00:20:00"\n[machine]\nnodes = 8\ngpus = 0\n'
WIDE = (
    'batch = "pbs"\nqueue = "edu"\ngroup = "cs101"\n[machine]\nnodes = 3\ngpus = 4\n[exercises]\nnodes = 3\ngpus = 4\n'
)
PARTS = {unit: part for unit, parts in UNITS.items() for part in parts if part.file.endswith(".sh")}

JOB = PARTS["multi_gpu"]
server = None  # see sandbox


@pytest.fixture(params=["local", "pbs", "reedbush", "slurm", "bare", "wide"])
def here(request, tmp_path, monkeypatch):
    """The chosen site; "bare" has neither groups nor GPUs; with "wide", the exercises use 3 nodes of 4 GPUs."""
    shutil.copytree(ROOT / "jobs/sites", tmp_path / "sites")
    (tmp_path / "sites/bare.toml").write_text(BARE)
    (tmp_path / "sites/wide.toml").write_text(WIDE)
    (tmp_path / "sites/CHOSEN").write_text(request.param)
    monkeypatch.setattr(site, "SITES", tmp_path / "sites")
    return site.read(request.param)


@pytest.fixture(scope="module", autouse=True)
def sandbox():
    """All scripts of this module run in one sandbox's server."""
    global server
    server = Server(loaded_for([JOB.file]))
    yield
    server.stop()


def judged(unit, text):
    """{criterion's id: (status, message)} of a job script with this text."""
    text = exercises.handed_in(PARTS[unit].file, text.encode())
    found = judge(unit, (PARTS[unit],), lambda file: text, server)
    [check] = PARTS[unit].checks
    return {one.id: (verdict.status, verdict.message) for one, verdict in zip(check.criteria, found)}


def failed(unit, text):
    """{criterion's id: message} of what fails."""
    return {id: message for id, (status, message) in judged(unit, text).items() if status != PASSED}


def solved(unit, here):
    filled = gaps.fill(
        gaps.exercise(solution(PARTS[unit].file).read_text(), ".sh"),
        gaps.answers(solution(PARTS[unit].file).read_text()),
    )
    return job_scripts.fitted(filled, here)


@pytest.mark.parametrize("unit", PARTS)
def test_the_solution_fitted_to_a_site_gets_full_marks_there(unit, here):
    assert failed(unit, solved(unit, here)) == {}


@pytest.mark.parametrize("unit", PARTS)
def test_an_exercise_asks_for_what_its_site_needs_and_no_more(unit, here):
    given = exercises.given_out(PARTS[unit].file).text
    [(_, _, of_solution)] = gaps.BEGIN.findall(solution(PARTS[unit].file).read_text())
    # as they are where a node has two GPUs
    numbers = re.findall("one node|two nodes|two (?:MPI )?processes", of_solution)
    assert numbers
    hint = " ".join(given.partition("#PBS")[0].replace("# ", "").split())
    assert ("(group: " in given, "the group" in hint) == (bool(here.group),) * 2
    assert ("GPU" in hint) == bool(here.gpus)
    for words in numbers:
        here_are = (
            {2: "two", 3: "three"}[here.exercise_nodes]
            if "nodes" in words
            else {2: "two", 4: "four"}[here.exercise_gpus]
        )
        assert words.replace("two", here_are) in hint
    assert {status for status, _ in judged(unit, given).values()} == {NOT_ATTEMPTED}


@pytest.mark.parametrize("here", ["bare"], indirect=True)
def test_a_profile_job_never_gets_back_the_lines_that_students_write(here):
    """Not even as a comment, which another `site use` would take back."""
    for source in sorted((ROOT / "solutions").glob("*/*_profile.sh")):
        given = release.without_requests(job_scripts.for_students(source.read_text(), here), source)
        for another in (here, site.read("reedbush")):
            assert not re.search("^#+PBS -[qlW]", job_scripts.fitted(given, another), re.MULTILINE)


def test_another_sites_answers_are_told_this_sites(here):
    text = (
        "#!/bin/bash\n#PBS -q other\n#PBS -l select=2:mpiprocs=2:ngpus=3:ompthreads=1\n#PBS -W group_list=other\n#PBS"
        " -l walltime=99:00:00\n"
    )
    found = failed("multi_node", text + "cd $PBS_O_WORKDIR\nmpiexec python pytorch/train_cifar_multi_node.py\n")
    assert f"`{here.queue}`" in found["queue"]
    assert (f"`{here.group}`" if here.group else "no groups") in found["group"]
    assert (str(here.exercise_gpus) if here.gpus else "no GPUs") in found["gpus"]
    assert ("time_limit" in found) == bool(here.walltime)


SELECT, TIME = "select=1:ngpus=2:mpiprocs=2:ompthreads=1", "walltime=00:10:00"


@pytest.mark.parametrize(
    ("asked", "wrong_on_slurm"),
    [
        (f"-l{SELECT}\n#PBS -l '{TIME}'", set()),
        (f"-l {TIME},{SELECT}", set()),
        (f"-l {SELECT} -l place=scatter:excl -l {TIME}", set()),
        (f"-l select=1:ngpus=2:ompthreads=1:mpiprocs=2,{TIME}", {"nodes"}),
        (f"-l select=ngpus=2:mpiprocs=2:ompthreads=1 -l {TIME}", {"nodes"}),
        (f"-l nodes=1:ppn=2:ngpus=2:ompthreads=1 -l {TIME}", {"nodes"}),
        (f"-l select=1:ngpus=2:mpiprocs=2 -l {TIME}", {"threads"}),
        (f"-l {SELECT} -l walltime=600", {"time_limit"}),
    ],
)
@pytest.mark.parametrize("batch", ["pbs", "slurm"])
def test_what_qsub_accepts_is_right_where_the_batch_system_reads_it_so(
    tmp_path, monkeypatch, batch, asked, wrong_on_slurm
):
    """Slurm's half was tried with sbatch 22.05."""
    text = solution(PARTS["multi_gpu"].file).read_text()
    text = text.replace(f"-l {SELECT}", asked).replace(f"#PBS -l {TIME}\n### G", "### G")
    found = at_site_of(batch, tmp_path, monkeypatch, text)
    wrong = wrong_on_slurm if batch == "slurm" else set()
    assert found.keys() >= wrong and bool(found) == bool(wrong), found


def test_on_slurm_an_account_a_comment_and_a_line_below_a_command_count(tmp_path, monkeypatch):
    text = solution(PARTS["multi_gpu"].file).read_text()
    text = text.replace("#PBS -W group_list=gt00", "hostname\n#PBS -A gt00  # ours")
    assert at_site_of("slurm", tmp_path, monkeypatch, text) == {}


def test_slurm_reads_no_directive_behind_blanks(tmp_path, monkeypatch):
    text = solution(PARTS["multi_gpu"].file).read_text().replace("#PBS -W group_list=gt00", "#PBS -A gt00")
    found = at_site_of("slurm", tmp_path, monkeypatch, text.replace("#PBS -A", "  #PBS -A"))
    assert "at the very start of the line" in found["group"]


def at_site_of(batch, folder, monkeypatch, text):
    (folder / "here.toml").write_text(f'batch = "{batch}"\ngroup = "gt00"\n')
    (folder / "CHOSEN").write_text("here")
    monkeypatch.setattr(site, "SITES", folder)
    return failed("multi_gpu", text)


def test_a_half_filled_script_is_judged_line_by_line():
    given = gaps.exercise(solution(JOB.file).read_text(), ".sh").text
    found = failed("multi_gpu", given.replace("(queue)", "lecture"))
    assert "queue" not in found and "still has a gap to fill" in found["nodes"] and "time_limit" in found


PROGRAM = "train_cifar_multi_node.py"
TRAIN = f"python pytorch/{PROGRAM}"


def with_commands(instead):
    """The solution for several nodes with other commands in place of those below PATH."""
    text = solved("multi_node", site.read("local"))
    return re.sub(r"(export PATH.*\n)(.*\n)*", lambda found: found[1] + instead, text)


def with_line(line):
    """The same with one more line below its directives."""
    return solved("multi_node", site.read("local")).replace("#PBS -N", f"{line}\n#PBS -N")


def test_the_solution_may_be_written_in_another_way():
    text = solved("multi_node", site.read("local"))
    for other in (
        "\ufeff" + text.replace("#PBS ", "#PBS\t"),
        text.replace("#!/bin/bash", ":").replace("#PBS -q", "  # my own comment\n#PBS -q"),
        text.replace("\nmpiexec", "\n# as in C:\\course\\\nnice -n 10 mpiexec"),
        text.replace("#PBS -q", "  #PBS -q").replace("#PBS -l select=2:", "\t#PBS -l select=2:\\\n"),
        with_line("#PBS -l network=100mbit\n#PBS -v HOME,A=\"'x,y'\""),
    ):
        assert failed("multi_node", other) == {}


@pytest.mark.parametrize(
    "instead",
    {
        "a number": f"mpirun \\\n -np 4 {TRAIN} $OPTIONS | tee log.txt\n",
        "guards": f"[ -f {TRAIN[7:]} ] || {{\nexit 1\n}}\nif [ -z $TRACK ]; then\nexit 1\nfi\nmpiexec -n 4 {TRAIN}\nexit 0\n",
        "threads": (
            f"OMP_NUM_THREADS=8 python prepare.py\n{TRAIN} --help\nmpiexec -genv OMP_NUM_THREADS 1 -n 4 nice -n 5"
            f" {TRAIN}\nexport OMP_NUM_THREADS=8\n"
        ),
        "quoted": f"cat <<END\nDon't worry, {PROGRAM} begins\nEND\nbash -c 'mpiexec -n 4 {TRAIN}'\n",
        "array": f'CMD=(mpiexec -n 4 {TRAIN})\n"${{CMD[@]}}" > >(tee log.txt)\n',
        "function": f"function run {{\ncd results || exit\ncd ..\nmpiexec -n 4 $1 $2\n}}\nfor i in 1; do run {TRAIN}; done\n",
        "output": f"log=$(exec mpiexec -n 4 {TRAIN})\n",
        "parts": f"mpiexec -n 2 {TRAIN} : -n 2 {TRAIN}\n",
        "wrapper": f"cat >rank.sh <<'END'\nexec {TRAIN}\nEND\nmpiexec -n 4 bash rank.sh\n",
        "torchrun": (
            'for node in $(uniq "$PBS_NODEFILE"); do\n    handson-agent $node "cd \'$PWD\' && torchrun --nnodes 2'
            f' --nproc-per-node 2 {TRAIN[7:]}" &\ndone\nwait\n'
        ),
        "torchrun by mpiexec": f"mpiexec -n 2 python -m torch.distributed.run --nproc-per-node=gpu {TRAIN[7:]}\n",
        "waited for": f"mpiexec -n 4 {TRAIN} 2>&1 | tee log &\nnvidia-smi dmon &\nwait %1\n",
        "looked after": f"nohup mpiexec -n 4 {TRAIN} &\nwhile kill -0 $!; do sleep 5; done\n",
        "what only that machine has": f"module load mpi\ncd /home/ann/course || exit\n/opt/mpi/bin/mpiexec -n 4 /opt/venv/bin/{TRAIN}\n",
        "beside the program": f"cd pytorch\nmpiexec -hostfile $PBS_NODEFILE -launcher ssh -bind-to core python3 -u {PROGRAM}\n",
    }.items(),
    ids=lambda item: item[0],
)
def test_the_program_may_be_started_in_any_way(instead):
    assert failed("multi_node", with_commands(instead[1])) == {}


@pytest.mark.parametrize(
    ("instead", "criterion", "words"),
    [
        (f"mpiexec -n 4 hostname\n{TRAIN}\n", "processes", "no mpiexec starts them"),
        (f"mpiexec -n 4 \\ \n    {TRAIN}\n", "processes", "no mpiexec starts them"),
        (f"mpiexec -n 1 {TRAIN}\nexit\nmpiexec -n 4 {TRAIN}\n", "processes", "mpiexec starts 1"),
        (f"mpiexec -n 4 {TRAIN}\nmpiexec -n 2 {TRAIN}\n", "processes", "mpiexec starts 2"),
        (f"N=1\nmpirun --np=$N {TRAIN}\n", "processes", "mpirun starts 1"),
        (f"torchrun --nproc-per-node 2 {TRAIN[7:]}\n", "processes", "torchrun starts 2"),
        (f"export OMP_NUM_THREADS=8\nmpiexec {TRAIN}\nexport OMP_NUM_THREADS=1\n", "threads", "OMP_NUM_THREADS to 8"),
        (f"mpiexec -x OMP_NUM_THREADS=8 {TRAIN}\n", "threads", "OMP_NUM_THREADS to 8"),
        (f"unset OMP_NUM_THREADS\nmpiexec {TRAIN}\n", "threads", "removes OMP_NUM_THREADS"),
    ],
)
def test_each_command_that_trains_is_judged_as_it_is_when_it_runs(instead, criterion, words):
    found = failed("multi_node", with_commands(instead))
    assert list(found) == [criterion] and words in found[criterion]


@pytest.mark.parametrize(
    ("instead", "words"),
    [
        ("", "no command of the script starts"),
        (f"true;# mpiexec {TRAIN}\n: <<'END'\nmpiexec {TRAIN}\nEND\n", "no command of the script starts"),
        (
            f'CMD="mpiexec {TRAIN}"\necho "$CMD"\nif [ -f {TRAIN[7:]} ]; then ls; fi\n',
            "no command of the script starts",
        ),
        (f"mpiexec {TRAIN} --help\nmpiexec {TRAIN}.txt\n", "no command of the script starts"),
        ("mpiexec python pytorch/my_train_cifar_multi_node.py\n", "no command of the script starts"),
        (f"exit 0\nmpiexec -n 4 {TRAIN}\n", "ends at `exit 0`"),
        (f"cd\nmpiexec -n 4 {TRAIN}\n", "keep the given line `cd`"),
        (f"mpiexec -n 4 {TRAIN} &\n", "leave out `&`"),
        (f"nohup mpiexec -n 4 {TRAIN} >log 2>&1 &\nnvidia-smi\necho started\n", "leave out `&`"),
    ],
)
def test_a_job_that_never_trains_gets_nothing(instead, words):
    found = failed("multi_node", with_commands(instead))
    assert len(found) == 8 and all(words in message for message in found.values())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("#PBS -I", "an interactive job is not possible"),
        ("#PBS '-h'", "requests `-h`"),
        ("#PBS -N a/b", "illegal -N value"),
        ("#PBS job", "has a space before `job`"),
        ("#PBS -v A=1,=2", "cannot send environment"),
        ("#PBS -l software=none", "requests `software`"),
        ("#PBS -S /bin/true", "requests `-S`"),
        ("#PBS -l nodes=2:ppn=2:ngpus=2:ompthreads=1", "cannot be used with"),
        ("#PBS -N " + "a," * 20_000, "cut"),
    ],
    ids=lambda text: text[:30],
)
def test_a_job_that_is_refused_or_may_not_run_gets_nothing(line, words):
    found = failed("multi_node", with_line(line))
    assert len(found) == 8 and all(words in message for message in found.values())


def test_a_script_with_the_line_ends_of_windows_gets_nothing_as_qsub_refuses_it():
    found = failed("multi_gpu", solved("multi_gpu", site.read("local")).replace("\n", "\r\n"))
    assert len(found) == 7 and all(message.endswith("sed -i 's/\\r$//' SCRIPT") for message in found.values())


@pytest.mark.parametrize("end", ["\u2028", "\x0b", "\r"])
def test_only_a_newline_ends_a_line(end):
    """As for PBS and the shell: the requests are a single comment."""
    requests, _, commands = solved("multi_gpu", site.read("local")).partition("\n\n")
    assert len(failed("multi_gpu", "# my job" + requests.replace("\n", end) + "\n\n" + commands)) == 7


def test_below_the_first_command_there_are_no_directives():
    found = failed("multi_gpu", solved("multi_gpu", site.read("local")).replace("#PBS -q", ": all\n#PBS -q"))
    assert len(found) == 7 and "comes after the first command" in found["nodes"]


@pytest.mark.thorough
@pytest.mark.parametrize("instead", ["while :; do :; done\n", "read line <><(:)\n", "echo >../notes x\n"])
def test_a_script_that_never_ends_or_harms_its_judge_gets_nothing(instead):
    found = failed("multi_node", with_commands(f"{instead}mpiexec -n 4 {TRAIN}\n"))
    assert len(found) == 8


@pytest.mark.thorough
@pytest.mark.parametrize("change", ["another site", "the site's file"])
def test_units_with_a_job_script_are_graded_anew_for_another_site_and_the_others_are_not(tmp_path, monkeypatch, change):
    shutil.copytree(ROOT / "jobs/sites", tmp_path / "sites")
    monkeypatch.setattr(site, "SITES", tmp_path / "sites")
    (tmp_path / "sites/bare.toml").write_text(BARE)
    (tmp_path / "sites/CHOSEN").write_text("bare")
    before = {unit: digest.of_unit(unit) for unit in UNITS}
    assert before == {unit: digest.of_unit(unit) for unit in UNITS}
    if change == "another site":
        (tmp_path / "sites/CHOSEN").write_text("reedbush")
    else:
        (tmp_path / "sites/bare.toml").write_text(BARE.replace("first", "other"))
    assert {unit for unit in UNITS if digest.of_unit(unit) != before[unit]} == set(PARTS)
