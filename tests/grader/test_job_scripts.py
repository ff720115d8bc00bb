"""What job scripts ask for is held against the site that was chosen, whatever that is."""

import re
import shutil
import time
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
from grader.verdict import FAILED, NOT_ATTEMPTED, PASSED
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


def verdicts(unit, text):
    return {verdict.check: verdict for verdict in judge(unit, (PARTS[unit],), lambda file: text, server)}


def solved(unit, here):
    filled = gaps.fill(
        gaps.exercise(solution(PARTS[unit].file).read_text(), ".sh"),
        gaps.answers(solution(PARTS[unit].file).read_text()),
    )
    return job_scripts.fitted(filled, here)


@pytest.mark.parametrize("unit", PARTS)
def test_the_solution_fitted_to_a_site_gets_full_marks_there(unit, here):
    for verdict in verdicts(unit, solved(unit, here)).values():
        assert verdict.status == PASSED, verdict


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
    assert {verdict.status for verdict in verdicts(unit, given).values()} == {NOT_ATTEMPTED}


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
    found = verdicts("multi_node", text + "cd $PBS_O_WORKDIR\nmpiexec python pytorch/train_cifar_multi_node.py\n")
    assert f"that is `{here.queue}`" in found["the queue"].message
    assert (f"that is `{here.group}`" if here.group else "leave the line") in found["the group"].message
    assert ("wanted" if here.gpus else "has no GPUs") in found["the GPUs of each node"].message
    assert found["the time limit"].status == (FAILED if here.walltime else PASSED)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("#PBS ", "#PBS\t"),
    ],
)
def test_windows_line_ends_marks_and_tabs_do_no_harm(change):
    text = gaps.normal(change(solved("multi_gpu", site.read("local"))).encode())
    assert {verdict.status for verdict in verdicts("multi_gpu", text).values()} == {PASSED}


SELECT, TIME = "select=1:ngpus=2:mpiprocs=2:ompthreads=1", "walltime=00:10:00"


@pytest.mark.parametrize(
    ("asked", "wrong_on_slurm"),
    [
        (f"-l {SELECT} -l {TIME}", {}),
        (f"-l{SELECT}\n#PBS -l{TIME}", {}),
        (f"-l '{SELECT}'\n#PBS -l \"{TIME}\"", {}),
        (f"-l {SELECT},{TIME}", {}),
        (f"-l {TIME},{SELECT}", {}),
        (f"-l {SELECT} -l place=scatter:excl -l {TIME}", {}),
        (
            f"-l select=1:ngpus=2:ompthreads=1:mpiprocs=2,{TIME}",
            {"the nodes": "up to the next colon for the number of `mpiprocs=`, here `2,walltime=00`"},
        ),
        (
            f"-l select=ngpus=2:mpiprocs=2:ompthreads=1 -l {TIME}",
            {"the nodes": "begin select with the number of nodes"},
        ),
        (
            f"-l select=1:ngpus=2:mpiprocs=2 -l {TIME}",
            {"the threads of each process": "the number of threads is left open"},
        ),
        (f"-l {SELECT} -l walltime=600", {"the time limit": "asks Slurm for 600 minutes"}),
    ],
)
@pytest.mark.parametrize("batch", ["embedded", "pbs", "slurm"])
def test_what_qsub_accepts_is_right_where_the_batch_system_reads_it_so(
    tmp_path, monkeypatch, batch, asked, wrong_on_slurm
):
    """Slurm's half was tried with sbatch 22.05."""
    (tmp_path / "here.toml").write_text(f'batch = "{batch}"\ngroup = "gt00"\n')
    (tmp_path / "CHOSEN").write_text("here")
    monkeypatch.setattr(site, "SITES", tmp_path)
    found = verdicts(
        "multi_gpu",
        solution(PARTS["multi_gpu"].file)
        .read_text()
        .replace(f"-l {SELECT}", asked)
        .replace(f"#PBS -l {TIME}\n### G", "### G"),
    )
    wrong = {name: verdict.message for name, verdict in found.items() if verdict.status != PASSED}
    expected = wrong_on_slurm if batch == "slurm" else {}
    assert wrong.keys() >= expected.keys() and bool(wrong) == bool(expected), wrong
    assert all(words in wrong[name] for name, words in expected.items())


def test_on_slurm_an_account_a_comment_and_a_line_below_a_command_count(tmp_path, monkeypatch):
    (tmp_path / "here.toml").write_text('batch = "slurm"\ngroup = "gt00"\n')
    (tmp_path / "CHOSEN").write_text("here")
    monkeypatch.setattr(site, "SITES", tmp_path)
    text = (
        solution(PARTS["multi_gpu"].file)
        .read_text()
        .replace("#PBS -W group_list=gt00", "hostname\n#PBS -A gt00  # ours")
    )
    assert {verdict.status for verdict in verdicts("multi_gpu", text).values()} == {PASSED}


def test_an_untouched_script_is_not_attempted_and_a_half_filled_one_is_judged_line_by_line():
    given = gaps.exercise(solution(PARTS["multi_gpu"].file).read_text(), ".sh").text
    assert {verdict.status for verdict in verdicts("multi_gpu", given).values()} == {NOT_ATTEMPTED}
    found = verdicts("multi_gpu", given.replace("(queue)", "lecture"))
    assert found["the queue"].status == PASSED
    assert re.search("still to be filled in", found["the nodes"].message) and found["the time limit"].status == FAILED


def at_local(unit, change):
    """The verdicts on the solution of a job script with a `change`, as a function of its text, at the site `local`."""
    data = change(solved(unit, site.read("local"))).encode()
    found = judge(unit, (PARTS[unit],), lambda file: exercises.handed_in(file, data), server)
    return {verdict.check: verdict for verdict in found}


def below(line):
    """A change of a job script: one more line below its directives."""
    return lambda text: text.replace("#PBS -N", f"{line}\n#PBS -N")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("#PBS -q", "  # my own comment\n#PBS -q"),
        lambda text: text.replace("#!/bin/bash", ":"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\nmpiexec", "\nmpiexec -n 1 hostname\nmpiexec"),
        lambda text: text.replace('$(wc -l <"$PBS_NODEFILE")', "4"),
        lambda text: text.replace('mpiexec -n $(wc -l <"$PBS_NODEFILE")', "mpirun \\\n    -np 4"),
        lambda text: (
            text.replace("\nmpiexec", "\nexport OMP_NUM_THREADS=1\ndate\ntime mpiexec").rstrip() + " | tee log.txt\n"
        ),
        lambda text: text.replace("\neval", '\nif [ -z "$PBS_NODEFILE" ]; then\n    exit 1\nfi\neval'),
        lambda text: text.replace("\nmpiexec", "\nnice -n 10 mpiexec"),
        lambda text: text.replace("\nmpiexec", "\n# as in C:\\course\\\nmpiexec"),
        lambda text: text + "exit 0\n",
        below("#PBS -l network=100mbit"),
        below("#PBS -v HOME,A=\"'x,y'\""),
    ],
    ids=[
        "indented comment",
        "colon first",
        "Windows",
        "hostname",
        "a number",
        "mpirun",
        "time and tee",
        "guarded exit",
        "nice",
        "backslash in a comment",
        "exit behind",
        "network",
        "variables",
    ],
)
def test_what_does_a_job_no_harm_is_right(change):
    assert {
        name: verdict.message for name, verdict in at_local("multi_node", change).items() if verdict.status != PASSED
    } == {}


def of_mpiexec(instead):
    return lambda text: text.replace('mpiexec -n $(wc -l <"$PBS_NODEFILE")', instead)


@pytest.mark.parametrize(
    ("change", "criterion", "message"),
    [
        (of_mpiexec("mpiexec -np 1"), "the processes of each node", "mpiexec starts 1"),
        (of_mpiexec("env mpiexec -n 1"), "the processes of each node", "mpiexec starts 1"),
        (of_mpiexec("mpirun -n 1"), "the processes of each node", "mpirun starts 1"),
        (of_mpiexec("OMP_NUM_THREADS=64 mpiexec"), "the threads of each process", "sets OMP_NUM_THREADS to 64"),
    ],
)
def test_the_command_that_trains_starts_what_is_asked_for(change, criterion, message):
    found = {
        name: verdict.message for name, verdict in at_local("multi_node", change).items() if verdict.status != PASSED
    }
    assert list(found) == [criterion] and message in found[criterion]


def commands(instead):
    """A change of a job script: other commands in place of those below PATH."""
    return lambda text: re.sub(r"(export PATH.*\n)(.*\n)*", lambda found: found[1] + instead, text)


TRAIN = "python pytorch/train_cifar_multi_node.py"


@pytest.mark.parametrize(
    "instead",
    [
        (
            f"mpiexec -n 1 hostname\necho train_cifar_multi_node.py begins # it's\nmpiexec -n 4 {TRAIN}\necho"
            " 'train_cifar_multi_node.py has ended'\n"
        ),
        f"[ -f {TRAIN[7:]} ] || {{\nexit 1\n}}\nif [ -z $TRACK ]; then\nexit 1\nfi\nmpiexec -n 4 {TRAIN}\n",
        (
            f"OMP_NUM_THREADS=8 python prepare.py\n{TRAIN} --help\nmpiexec -genv OMP_NUM_THREADS 1 -n 4 nice -n 5"
            f" {TRAIN}\nexport OMP_NUM_THREADS=8\n"
        ),
        (
            f"SCRIPT=${{SCRIPT:-{TRAIN[7:]}}}\nmpiexec -n 4 python ${{SCRIPT:?}} -o results/${{SCRIPT%.py}}\npython"
            " plot.py results/${SCRIPT%.py}\n"
        ),
        f'L="mpiexec -n 4"\nC="$L {TRAIN}"\necho "$C"\n$C &> log.txt\n',
        f'run() {{\n    mpiexec -n 4 "$@"\n}}\nrun {TRAIN}\n',
        f'CMD=(mpiexec -n 4 {TRAIN})\n"${{CMD[@]}}" > >(tee log.txt)\n',
        f'CMD=(\n  {TRAIN}\n)\nmpiexec -n 4 "${{CMD[@]}}"\n',
        f"function fail {{\necho failed\nexit 1\n}}\n(\ncd results || exit\nexit 0\n)\nmpiexec -n 4 {TRAIN} || fail\n",
        f"log=$(mpiexec -n 4 {TRAIN})\n",
        f"mpiexec -n 2 {TRAIN} : -n 2 {TRAIN}\n",
        (
            f"cat >rank.sh <<'END'\nexport CUDA_VISIBLE_DEVICES=$MPI_LOCALRANKID\nexec {TRAIN}\nEND\nmpiexec -n 4 bash"
            " rank.sh\n"
        ),
        f"cat <<END\nDon't worry\nEND\nbash -c 'mpiexec -n 4 {TRAIN}'\n",
        (
            'for node in $(uniq "$PBS_NODEFILE"); do\n    handson-agent $node "cd \'$PWD\' && torchrun --nnodes 2'
            f' --nproc-per-node 2 {TRAIN[7:]}" &\ndone\nwait\n'
        ),
        f"mpiexec -n 2 torchrun --nnodes 2 --nproc-per-node 2 {TRAIN[7:]}\n",
        f"mpiexec -n 4 {TRAIN} 2>&1 | tee log &\nnvidia-smi dmon &\nwait %1\n",
        f"mpiexec -n 4 {TRAIN} &>log && date\nnvidia-smi &\n",
        f"nohup mpiexec -n 4 {TRAIN} &\nwhile kill -0 $!; do sleep 5; done\n",
    ],
    ids=[
        "shown",
        "guards",
        "threads",
        "its name",
        "its command",
        "function",
        "array",
        "array of the program",
        "exits",
        "output",
        "parts",
        "wrapper",
        "quoted",
        "torchrun",
        "torchrun by mpiexec",
    ]
    + ["waited for", "another command", "looked after"],
)
def test_the_program_may_be_started_in_any_way(instead):
    assert {
        name: verdict.message
        for name, verdict in at_local("multi_node", commands(instead)).items()
        if verdict.status != PASSED
    } == {}


@pytest.mark.parametrize(
    ("instead", "criterion", "message"),
    [
        (
            f"mpiexec -n 4 hostname\n{TRAIN}\n",
            "the processes of each node",
            "no mpiexec starts them: a command runs train_cifar_multi_node.py in one",
        ),
        (f"mpiexec -n 4 \\ \n    {TRAIN}\n", "the processes of each node", "no mpiexec starts them"),
        (f"echo no mpiexec\ntime {TRAIN}\n", "the processes of each node", "no mpiexec starts them"),
        (f"S={TRAIN[7:]}\nmpiexec hostname\npython $S\n", "the processes of each node", "no mpiexec starts them"),
        (f"mpiexec -n 1 {TRAIN}\nexit\nmpiexec -n 4 {TRAIN}\n", "the processes of each node", "mpiexec starts 1"),
        (
            f"mpiexec -n 1 {TRAIN}\necho train_cifar_multi_node.py has ended\n",
            "the processes of each node",
            "mpiexec starts 1",
        ),
        (f"mpiexec -n 4 {TRAIN}\nmpiexec -n 2 {TRAIN}\n", "the processes of each node", "mpiexec starts 2"),
        (f"mpiexec -n '1' {TRAIN}\n", "the processes of each node", "mpiexec starts 1"),
        (f"mpiexec -n 4 -n 1 {TRAIN}\n", "the processes of each node", "mpiexec starts 1"),
        (f"mpiexec --np=1 {TRAIN}\n", "the processes of each node", "mpiexec starts 1"),
        (f"srun --ntasks=1 {TRAIN}\n", "the processes of each node", "srun starts 1"),
        (f'CMD=({TRAIN})\necho mpiexec\n"${{CMD[@]}}"\n', "the processes of each node", "no mpiexec starts them"),
        (f'L=(mpiexec -n 2)\n"${{L[@]}}" {TRAIN}\n', "the processes of each node", "mpiexec starts 2"),
        (
            f"(cd results)\nmpiexec -n 1 {TRAIN}\nexit\nmpiexec -n 4 {TRAIN}\n",
            "the processes of each node",
            "mpiexec starts 1",
        ),
        (f"L='mpiexec -n 2'\n$L {TRAIN}\n", "the processes of each node", "mpiexec starts 2"),
        (
            f"export OMP_NUM_THREADS=8\nmpiexec {TRAIN}\nexport OMP_NUM_THREADS=1\n",
            "the threads of each process",
            "sets OMP_NUM_THREADS to 8",
        ),
        (f'env "OMP_NUM_THREADS"=8 mpiexec {TRAIN}\n', "the threads of each process", "sets OMP_NUM_THREADS to 8"),
        (f"mpiexec -genv OMP_NUM_THREADS 8 {TRAIN}\n", "the threads of each process", "sets OMP_NUM_THREADS to 8"),
    ],
)
def test_each_command_that_trains_is_judged_as_it_is_when_it_runs(instead, criterion, message):
    found = {
        name: verdict.message
        for name, verdict in at_local("multi_node", commands(instead)).items()
        if verdict.status != PASSED
    }
    assert list(found) == [criterion] and message in found[criterion]


@pytest.mark.parametrize(
    "instead",
    [
        f"\t# mpiexec {TRAIN}\n",
        f"true;# mpiexec {TRAIN}\n",
        f": <<'END'\nmpiexec {TRAIN}\nEND\n",
        f": '\nmpiexec {TRAIN}\n'\n",
        f'HELP="\nto train, type mpiexec {TRAIN}\n"\necho "$HELP"\n',
        f"mpiexec hostname; echo mpiexec {TRAIN}\n",
        f"CMD=(mpiexec {TRAIN})\n",
        f"if [ -f {TRAIN[7:]} ]; then ls -l {TRAIN[7:]}; fi\n",
        f"mpiexec {TRAIN} --help\n",
        f"mpiexec {TRAIN}.txt\n",
        "mpiexec python pytorch/my_train_cifar_multi_node.py\n",
    ],
)
def test_text_that_only_names_the_program_trains_nothing(instead):
    found = at_local("multi_node", commands(instead))
    assert all(
        "no command of the script starts train_cifar_multi_node.py" in verdict.message for verdict in found.values()
    )


@pytest.mark.parametrize(
    "piece",
    [
        "a<<b\n",
        '"$(',
        "$( (a) ",
        "${a-",
        "`a ",
        "if ",
        '"\\',
        "mpiexec -n ",
        "A=(",
        "A=((a) ",
        f'A="{TRAIN} {"x -n " * 50}"\n' + "$A " * 6000,
    ],
)
def test_a_script_of_any_length_is_read_at_once(piece):
    begin = time.process_time()
    at_local("multi_node", commands(piece * (900_000 // len(piece))))
    assert time.process_time() - begin < 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.partition("\ncd")[0], "no command of the script starts train_cifar_multi_node.py"),
        (
            lambda text: text.replace("\nmpiexec", "\n# mpiexec"),
            "no command of the script starts train_cifar_multi_node.py",
        ),
        (lambda text: text.replace("\ncd", "\nexit 0\ncd"), "the script ends at `exit 0`"),
        (
            commands(f"mpiexec -n 4 {TRAIN} &\n"),
            "with `&` the script goes on beside the command that starts train_cifar_multi_node.py",
        ),
        (commands(f"nohup mpiexec -n 4 {TRAIN} >log 2>&1 & # in the background\necho started\n"), "leave `&` out"),
        (commands(f"mpiexec -n 4 {TRAIN} 2>&1 | tee log &\n"), "leave `&` out, or let `wait` be the last line"),
        (below("#PBS -I"), "an interactive job is not possible"),
        (below("#PBS '-h'"), "asks for `-h`"),
        (below("#PBS '-N' a/b"), "illegal -N value"),
        (below("#PBS job"), "there is a space before `job`"),
        (below("#PBS -v A=1,=2"), "cannot send environment"),
        (below("#PBS -W block=maybe"), "Illegal attribute or resource value block"),
        (below("#PBS -l software=none"), "asks for `software`"),
        (lambda text: text.replace("#PBS -q lecture", "#PBS -q lecture -N a/b"), "illegal -N value"),
    ],
)
def test_a_job_that_is_refused_or_never_trains_gets_nothing(change, message):
    found = at_local("multi_node", change)
    assert {verdict.status for verdict in found.values()} == {FAILED}
    assert all(message in verdict.message for name, verdict in found.items() if name != "the processes of each node")


@pytest.mark.parametrize("end", ["\u2028", "\x85", "\x0b", "\x0c", "\r"])
def test_only_a_newline_ends_a_line(end):
    """As for PBS and the shell: the requests are a single comment."""
    found = at_local(
        "multi_gpu",
        lambda text: "# my job" + text.partition("\n\n")[0].replace("\n", end) + "\n\n" + text.partition("\n\n")[2],
    )
    assert FAILED in {verdict.status for verdict in found.values()} and PASSED not in {
        verdict.status for verdict in found.values()
    }


def test_below_the_first_command_there_are_no_directives():
    found = at_local("multi_gpu", lambda text: text.replace("#PBS -q", ": all\n#PBS -q"))
    assert {verdict.status for verdict in found.values()} == {FAILED}
    assert "stands below the first command" in found["the nodes"].message


@pytest.mark.parametrize(
    "line",
    ["#PBS -W " + "group" * 11_000, "#PBS -l " + "\"'" * 27_000, "#PBS -W group=" + "a," * 27_000],
    ids=["group", "quotes", "commas"],
)
def test_a_directive_that_is_too_long_is_not_read(line):
    begin = time.process_time()
    found = at_local("multi_gpu", below(line))
    assert time.process_time() - begin < 0.5
    assert all(len(verdict.message) < 3000 for verdict in found.values()) and FAILED in {
        verdict.status for verdict in found.values()
    }


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
