"""Following jobs: what is said while they wait, run and end; with the embedded PBS, and with what PBS and Slurm
print."""

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig

import pytest
import real_pbs
from waiting import run_to_end

from handson.cluster import follow as following
from handson.cluster.follow import JobFailed, follow, submit
from handson.pbs import jobs

PATIENCE = 60  # seconds


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    """However busy this machine is, no sentence mentions it."""
    monkeypatch.setattr(following.linux, "BUSY", 10**6)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to submit jobs in, to an embedded PBS of its own whose jobs have all ended afterwards."""
    for name in [name for name in os.environ if name.startswith(("PBS_", "HANDSON_", "SLURM"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HANDSON_PBS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # as a notebook's kernel may have it
    monkeypatch.setattr(following, "START", PATIENCE)  # on a busy machine, jobs begin late
    folder = tmp_path / "the folder"
    folder.mkdir()
    yield folder
    (folder / "end").touch()
    if (tmp_path / "state").exists():
        listed = run_to_end([f"{sysconfig.get_path('scripts')}/qstat"]).stdout.splitlines()[2:]
        for job_id in (line.split()[0] for line in listed):
            subprocess.run([f"{sysconfig.get_path('scripts')}/qdel", job_id], capture_output=True)
            jobs.wait(job_id, PATIENCE)


def job(folder, script, *arguments, **variables):
    (folder / "job.sh").write_text(f'#!/bin/bash\n#PBS -N job\ncd "$PBS_O_WORKDIR"\n{script}')
    return submit(folder, "-j", "oe", *arguments, "job.sh", **variables)


UNTIL_THE_END = "until [ -e end ]; do sleep 0.05; done\n"


class Said(list):
    """What was said; `on` (a line) calls a function."""

    def __init__(self, **on):
        self.on = on

    def __call__(self, line):
        self.append(line)
        if line in self.on:
            self.on[line]()


# With the embedded PBS ------------------------------------------------------------


@pytest.mark.thorough
def test_a_job_that_prints_nothing_is_explained_once(folder, monkeypatch):
    monkeypatch.setattr(following, "START", 0)
    explained = (
        "job {} has printed nothing yet: Python takes some seconds to start on all ranks, and some batch systems bring"
        " the output at the end"
    )
    running = job(folder, UNTIL_THE_END + "echo at last\n")
    said = Said(**{explained.format(running): (folder / "end").touch})
    follow(running, say=said, limit=PATIENCE)
    assert said == [explained.format(running), "at last"]


@pytest.mark.thorough
def test_lines_are_said_while_the_job_runs(folder):
    number = job(folder, f"echo live\n{UNTIL_THE_END}echo over")
    said = Said(live=(folder / "end").touch)  # without a line at once, the job would not end
    follow(number, say=said, limit=PATIENCE)
    assert said == ["live", "over"]


@pytest.mark.thorough
def test_the_output_is_found_wherever_it_goes_and_again_after_the_end(folder):
    number = job(folder, "printf 'no newline at the end'", "-o", "else where.txt")
    for _ in range(2):
        follow(number, say=(said := Said()))
        assert said == ["no newline at the end"]
    assert (folder / "else where.txt").exists()


@pytest.mark.thorough
def test_a_job_that_waits_says_where_and_why(folder):
    first = job(folder, UNTIL_THE_END, "-l", "select=2:ngpus=2")
    second = job(folder, "echo mine", "-l", "select=2:ngpus=2")
    said = Said()

    def say(line):
        said(line)
        (folder / "end").touch()

    follow(second, say=say)
    waits, *rest = said
    assert waits.startswith(f"job {second} waits in queue lecture: ") and rest == ["mine"]
    follow(first, say=Said())


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["Ctrl-C in a notebook", "Ctrl-C in a command"])
def test_ctrl_c_leaves_the_job_running_and_it_can_be_followed_again(folder, how):
    number = job(folder, f"echo live\n{UNTIL_THE_END}echo over")
    handler = signal.default_int_handler if "notebook" in how else lambda number, frame: sys.exit(130)
    before = signal.signal(signal.SIGINT, handler)
    try:
        said = Said(live=lambda: signal.raise_signal(signal.SIGINT))
        with contextlib.nullcontext() if "notebook" in how else pytest.raises(SystemExit):
            follow(number, say=said)
    finally:
        signal.signal(signal.SIGINT, before)
    live, sentence = said
    assert (
        sentence
        == f"Job {number} continues without being followed: follow('{number}') shows it again, and `qdel {number}`"
        " ends it."
    )
    assert jobs.job(number)["state"] == "R"
    follow(number, say=(again := Said(live=(folder / "end").touch)))
    assert again == ["live", "over"]


@pytest.mark.thorough
def test_a_job_that_fails_is_an_error_with_its_status_and_the_place_of_its_output(folder):
    number = job(folder, "echo no; exit 7")
    with pytest.raises(JobFailed, match=f"^job {number} ended with status 7; its output is in {folder}/job.o0$"):
        follow(number, say=(said := Said()))
    assert said == ["no"]


def test_a_job_that_can_never_run_is_not_waited_for(folder):
    number = job(folder, "echo", "-l", "select=100")
    with pytest.raises(
        JobFailed,
        match=(
            rf"^job {number} would wait forever in queue lecture: Can Never Run: .*: delete it \(qdel {number}\), and"
            r" request less$"
        ),
    ):
        follow(number, say=Said())


def test_a_job_that_there_is_none_of(folder):
    with pytest.raises(
        JobFailed,
        match="^the embedded PBS does not know job 77, or has forgotten it: `qstat -x` shows the jobs that it knows$",
    ):
        follow(77)


@pytest.mark.parametrize("marked", [True, False])
def test_a_refused_script_with_gaps_is_to_be_filled_first(folder, marked):
    mark = "# PUT YOUR CODE: the nodes\n" if marked else ""
    (folder / "job.sh").write_text(f"#!/bin/bash\n{mark}#PBS -l (nodes and so on: select=...)\n")
    with pytest.raises(JobFailed, match=f"^qsub refused job.sh in {folder}: .*directive") as error:
        submit(folder, "job.sh")
    assert str(error.value).endswith(f"; first fill the gaps of {folder}/job.sh (PUT YOUR CODE)") == marked


@pytest.mark.thorough
def test_values_of_variables_arrive_whatever_is_in_them(folder):
    value = "-e 1 --size 32, 'and' \"so\" on"
    follow(job(folder, 'echo "$OPTIONS"', OPTIONS=value), say=(said := Said()))
    assert said == [value]


TRAINING = "# Minibatch-size: 32\n# epoch: 4\n\nepoch       main/loss   elapsed_time\n{rows}Throughput: 7\n"


@pytest.mark.thorough
def test_a_bar_counts_the_epochs_where_people_look_on(folder, monkeypatch, capsys):
    rows = "".join(f"{epoch}           0.5         {epoch}.0\n" for epoch in range(1, 5))
    (folder / "training").write_text(TRAINING.format(rows=rows))
    number = job(folder, "cat training")
    monkeypatch.setitem(sys.modules, "ipykernel", sys)  # as ipyparallel imports it: that alone makes no notebook
    follow(number)
    assert capsys.readouterr().out == (folder / "training").read_text(), "nothing but the lines where nobody looks on"
    monkeypatch.setattr(following, "in_notebook", lambda: True)
    monkeypatch.setenv("TQDM_MININTERVAL", "0")
    follow(number)
    shown = capsys.readouterr().out
    assert "0/4" in shown and "4/4" in shown and "Throughput: 7" in shown


# With a real PBS, and with Slurm: what they print, as seen there ------------------------

QSTAT = """Job Id: 12.pbshead
    Job_Name = job
    job_state = {state}
    queue = workq
    comment = {comment}
    Error_Path = pbshead:{folder}/job.e12
    Join_Path = {join}
    Output_Path = pbshead:{folder}/a_long_name_that_qstat_folds_at_some_place_or
\t_other/job.o12
{status}
"""
SCONTROL = (
    "JobId=12 JobName=run_x.sh UserId=me(1) JobState={state} Reason={reason} Dependency=(null) ExitCode={code}"
    " NumNodes=1-1 TRES=cpu=2,node=1 Partition=lecture Command={folder}/run_x.sh WorkDir={folder}"
    " StdErr={folder}/run_x.sh.o12 StdOut={folder}/run_x.sh.o12 Power= TresPerNode=gres:gpu:2\n"
)


@pytest.fixture
def real(folder, tmp_path, monkeypatch):
    """``real(name, script)`` puts a batch system's command on PATH. Every look of `follow` advances the file `looks` by
    a line."""
    monkeypatch.setattr(following.time, "sleep", lambda seconds: None)
    programs = tmp_path / "real"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    def real(name, script):
        (programs / name).write_text(f"#!/bin/sh\n# {'Slurm' if name == 'scontrol' else 'PBS'}\n{script}\n")
        (programs / name).chmod(0o755)

    return real


def answers(folder, *texts):
    """A script that prints one text after the other, each time it is called, and then the last again and again."""
    for number, text in enumerate(texts):
        (folder / f"answer{number}").write_text(text)
    last = len(texts) - 1
    count = f"n=$(cat '{folder}/looks' 2>/dev/null || echo 0); echo $((n < {last} ? n + 1 : n)) >'{folder}/looks'"
    return f"{count}\ncat '{folder}'/answer$n"


def test_a_real_pbs_tells_state_output_and_status(folder, real):
    place = folder / "a_long_name_that_qstat_folds_at_some_place_or_other"
    place.mkdir()
    (place / "job.o12").write_text("all of it\n")
    real("qsub", "echo 12.pbshead")
    fill = {"folder": folder, "join": "oe", "status": "", "comment": "Not Running: Not enough free nodes available"}
    done = QSTAT.format(**fill | {"state": "F", "status": "    Exit_status = 3\n"})
    real("qstat", answers(folder, QSTAT.format(state="Q", **fill), QSTAT.format(state="R", **fill), done))
    number = job(folder, "")
    with pytest.raises(JobFailed, match=f"job 12.pbshead ended with status 3; its output is in {place}/job.o12"):
        follow(number, say=(said := Said()))
    assert said == ["job 12.pbshead waits in queue workq: Not enough free nodes available", "all of it"]


def test_a_real_pbs_without_a_history_forgets_a_job_at_its_end(folder, real):
    (folder / "job.e12").write_text("joined to the errors\n")
    real("qsub", "echo 12.pbshead")
    running = QSTAT.format(folder=folder, state="R", join="eo", comment="", status="")
    (folder / "running").write_text(running)
    real(
        "qstat",
        f"""[ "$1" = -f ] || {{ echo 'qstat: PBS is not configured to maintain job history' >&2; exit 1; }}
rm '{folder}/running.now' 2>/dev/null || {{ echo 'qstat: Unknown Job Id 12.pbshead' >&2; exit 153; }}
cat '{folder}/running'""",
    )
    (folder / "running.now").touch()
    follow("12.pbshead", say=(said := Said()))
    assert said == ["joined to the errors"]


@pytest.mark.thorough
def test_a_job_of_a_sites_own_pbs_is_followed_to_its_end(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{real_pbs.install(tmp_path / 'real')}:/usr/bin:/bin")
    number = job(folder, "echo all of it; exit 3")
    with pytest.raises(JobFailed, match=f"^job {number} ended with status 3; its output is in {folder}/job.o0$"):
        follow(number, say=(said := Said()))
    assert said[-1] == "all of it"
    with pytest.raises(JobFailed, match="^job abc cannot be followed: qstat: Unknown queue destination abc$"):
        follow("abc")


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (None, "was deleted before it ran"),
        ("0", ""),
        (3, "ended with status 3"),
        ("271", "was deleted while it ran (status 271)"),
        (-29, "was ended as it ran longer than its walltime (status -29)"),
        (137, "ended with status 137: it was killed by SIGKILL"),
        (265, "ended with status 265: it was killed by SIGKILL"),
    ],
)
def test_the_status_of_a_job_is_put_into_words(status, says):
    assert following._problem(status) == says


def slurm(folder, real, *states):
    real("qsub", "# Slurm's\necho 12")
    real(
        "scontrol",
        answers(
            folder,
            *(SCONTROL.format(folder=folder, state=state, reason=reason, code=code) for state, reason, code in states),
        ),
    )


def test_slurm_names_the_output_after_the_script(folder, real):
    (folder / "run_x.sh.o12").write_text("from Slurm\n")
    slurm(
        folder,
        real,
        ("PENDING", "None", "0:0"),
        ("PENDING", "Resources", "0:0"),
        ("RUNNING", "None", "0:0"),
        ("COMPLETED", "None", "0:0"),
    )
    follow(job(folder, ""), say=(said := Said()))
    assert sorted(said) == ["from Slurm", "job 12 waits in partition lecture: Resources"]


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        ("FAILED", "2:0", "ended with status 2"),
        ("TIMEOUT", "0:15", "ended as TIMEOUT"),
        ("CANCELLED", "0:0", "ended as CANCELLED"),
    ],
)
def test_slurm_tells_how_a_job_ended(folder, real, state, code, words):
    slurm(folder, real, (state, "None", code))
    with pytest.raises(JobFailed, match=f"^job 12 {words}$"):
        follow(12)
