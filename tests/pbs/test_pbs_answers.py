"""What the embedded commands answer, row by row as a real PBS did: OpenPBS 23.06.06 on two hosts, asked on 2026-11-22.

No process is started: the commands run here, and `started` marks jobs as running. A line ``hint: ...`` is ours and
comes last.
"""

import io
import json
import os
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from handson import linux
from handson.pbs import command, command_options, machine, qdel, qsub, scheduler, store

SERVER = "pbshead"
MODULES = {"qmove": "unsupported", "qrerun": "unsupported", "qmgr": "unsupported"}
SITE = """
queue = ["workq", "lecture"]
group = "gt00"
[machine]
nodes = 2
gpus = 2
ncpus = 4
mem = "24gb"
"""
SCRIPTS = {
    "a.sh": "#!/bin/bash\necho hello\n",
    "gap.sh": "#!/bin/bash\n#PBS -l (nodes and so on: select=...)\n",
    "group.sh": "#!/bin/bash\n#PBS -W (group: group_list=...)\n",
    "time.sh": "#!/bin/bash\n#PBS -l (time limit: walltime=...)\n",
    "dots.sh": "#!/bin/bash\n#PBS -l select=...\n",
    "queue.sh": "#!/bin/bash\n#PBS -q (queue)\n",
    "crlf.sh": "#!/bin/bash\r\n#PBS -N name\r\necho\r\n",
    "comment.sh": "#!/bin/bash\n#PBS -N cmt # my comment\n",
    "words.sh": "#!/bin/bash\n#PBS -N pos extra\n",
    "option.sh": "#!/bin/bash\n#PBS -Z\n",
    "late.sh": "#!/bin/bash\necho\n#PBS -Z\n",
    "empty.sh": "",
}


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    """``ask(line)``: what the command prints on stdout and stderr, and its exit status."""
    for name in [name for name in os.environ if name.startswith(("PBS_", "HANDSON_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "site.toml").write_text(SITE)
    monkeypatch.setenv("HANDSON_PBS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HANDSON_SITE", str(tmp_path / "site.toml"))
    monkeypatch.setenv("LOGNAME", "student")
    monkeypatch.setattr(command, "step_aside", lambda *_: None)
    monkeypatch.setattr(machine, "server_name", lambda: SERVER)
    monkeypatch.setattr(scheduler, "ensure", lambda: None)
    monkeypatch.setattr(
        linux.pwd,
        "getpwuid",
        lambda uid: SimpleNamespace(pw_name="student", pw_dir="/home/student", pw_shell="/bin/bash"),
    )
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name, text in SCRIPTS.items():
        (tmp_path / "work" / name).write_bytes(text.encode())
    umask = os.umask(0o077)

    def ask(line, stdin=""):
        name, *words = shlex.split(line)
        monkeypatch.setattr(sys, "argv", [name, *words])
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin.encode())))
        module = import_module(f"handson.pbs.{MODULES.get(name, name)}")
        with pytest.raises(SystemExit) as end:
            getattr(module, name if name in MODULES else "main")()
        if isinstance(end.value.code, str):
            return "", f"{end.value.code}\n", 1
        return *capsys.readouterr(), end.value.code

    yield ask
    os.umask(umask)


def started(*changes):
    """Let the scheduler choose what runs, and mark it so; changes: of the first job that does."""
    with store.transaction() as db:
        for job in scheduler.plan(db, store.select(db, store.UNFINISHED), 1795307962):
            job.update({"session": 1390, "used": {"cput": "00:00:00", "walltime": "00:00:00"}}, *changes)
            store.put(db, job)


def ended(name, **changes):
    with store.transaction() as db:
        job = store.get(db, name)
        store.put(db, job | {"state": "F", "obittime": 1795307970, "exit_status": 0} | changes)


USAGE = {name: f"{text}\n" for name, text in {"qsub": command_options.USAGE, "qdel": qdel.USAGE}.items()}


def same(answer, expected, status):
    """Compare an answer with what PBS says on stderr; ours may add hints."""
    out, err, code = answer
    err = re.sub(r"^hint: .*\n", "", err, flags=re.MULTILINE)
    return (out, err, code) == ("", expected, status)


# qsub: what is refused --------------------------------------------------------------

WITH_USAGE = [
    "-N 'has space' a.sh",
    "-N '' a.sh",
    "-N a/b a.sh",
    "-N 'ä' a.sh",
    "-j xx a.sh",
    "-j o a.sh",
    "-J 5-1 a.sh",
    "-J 0-4:0 a.sh",
    "-J x a.sh",
    "-J 1 a.sh",
    "-p 2000 a.sh",
    "-p abc a.sh",
    "-r maybe a.sh",
    "-a 99 a.sh",
    "-m q a.sh",
    "-k xx a.sh",
    "-c zz a.sh",
    "-S nothing a.sh",
    "-R x a.sh",
    "-W depend=foo:1 a.sh",
    "-W depend=afterok a.sh",
    "-W depend=afterok: a.sh",
    "-W depend=afterok:abc a.sh",
    "-W block a.sh",
    "-W group_list= a.sh",
    "-W stagein=x a.sh",
]
VALUE = "Illegal attribute or resource value"
NOT_WITH = '"-lresource=" cannot be used with "select" or "place", resource is:'
REFUSED = [
    ("nosuch.sh", "script file:: No such file or directory", 1),
    ("/bin", "script not a file", 1),
    ("crlf.sh", "script contains cr, lf", 1),
    ("gap.sh", "directive error: -l (nodes and so on: select=...) ", 1),
    ("group.sh", "illegal -W value\nqsub: directive error: -W (group: group_list=...) ", 1),
    ("time.sh", "directive error: -l (time limit: walltime=...) ", 1),
    ("comment.sh", "directive error: -N cmt # my comment ", 1),
    ("words.sh", "directive error: -N pos extra ", 1),
    ("option.sh", "invalid option -- 'Z'\nqsub: directive error: -Z ", 1),
    ("dots.sh", f"{VALUE} Resource_List.select", 166),
    ("queue.sh", "Unknown queue", 170),
    ("-q nosuch a.sh", "Unknown queue", 170),
    ("-v A a.sh", "cannot send environment with the job", 1),
    ("-v A=7,B a.sh", "cannot send environment with the job", 1),
    (f"-N {'x' * 240} a.sh", "Job name is too long ", 2),
    ("-W group_list=nosuch a.sh", "Bad GID for job execution", 197),
    ("-W nosuch=1 a.sh", "Bad GID for job execution", 154),
    ("-u root a.sh", "Bad UID for job execution", 175),
    ("-l ncpus=2 -l select=1 a.sh", f"{NOT_WITH} ncpus", 5),
    ("-l walltime=10 -l select=1,mem=100mb a.sh", f"{NOT_WITH} mem", 5),
    (
        "-l select=1:ncpus=1:ncpus=2 a.sh",
        "duplicated resource within a section of a select specification, resource is: ncpus",
        12,
    ),
    ("-l select=2:foo=1 a.sh", "Unknown resource: foo", 187),
    ("-l foo=1 a.sh", "Unknown resource Resource_List.foo", 187),
    ("-l select=0 a.sh", VALUE, 166),
    ("-l select=2:mpiprocs=two a.sh", f"{VALUE} select.mpiprocs", 166),
    ("-l select=1:ncpus=-1 a.sh", f"{VALUE} select.ncpus", 166),
    ("-l select=1:mem=1xb a.sh", f"{VALUE} select.mem", 166),
    *(
        (f"-l {text} a.sh", f"{VALUE} Resource_List.select", 166)
        for text in ("select", "select=", "select=1+", "select=1:ncpus=", "'select=1: ncpus=1'", "select=1::ncpus=1")
    ),
    *((f"-l {text} a.sh", f"{VALUE} Resource_List.place", 166) for text in ("place=foo", "place=pack:scatter")),
    *((f"-l walltime={text} a.sh", f"{VALUE} Resource_List.walltime", 166) for text in ("abc", "1:2:3:4", "-5", "1h")),
]


@pytest.mark.parametrize(("words", "says", "status"), REFUSED)
def test_what_qsub_refuses(ask, words, says, status):
    assert same(ask(f"qsub {words}"), f"qsub: {says}\n", status)
    assert ask("qstat -x") == ("", "", 0), "nothing is stored"


@pytest.mark.parametrize("words", WITH_USAGE)
def test_a_wrong_value_of_an_option_is_refused_with_the_usage(ask, words):
    assert same(ask(f"qsub {words}"), f"qsub: illegal {words[:2]} value\n{USAGE['qsub']}", 2)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("-Z a.sh", "qsub: invalid option -- 'Z'\n"),
        ("-l", "qsub: option requires an argument -- 'l'\n"),
        ("a.sh extra", ""),
        ("--", ""),
    ],
)
def test_a_wrong_command_line_is_answered_with_the_usage(ask, words, says):
    assert same(ask(f"qsub {words}"), says + USAGE["qsub"], 2)


def test_a_script_that_may_not_be_read(ask, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(qsub, "_limited", refuse)
    assert same(ask("qsub a.sh"), "qsub: opening script file:: Permission denied\n", 8)


def test_a_queue_of_a_server_that_cannot_be_found(ask):
    assert same(
        ask("qsub -q lecture@nosuch a.sh"), "Unknown Host.\nqsub: cannot connect to server pbshead (errno=15008)\n", 160
    )


# qsub: what is accepted ---------------------------------------------------------------

ACCEPTED = [
    "a.sh",
    "-j oe a.sh",
    "-joe a.sh",
    "-l walltime=00:00:00 a.sh",
    "-l select=3:ngpus=2 -l place=scatter a.sh",
    "-l select=1:ncpus=64 a.sh",
    "-N 1abc a.sh",
    "-N averyveryverylongjobnameindeedmorethan15 a.sh",
    "-W depend=afterok:999999 a.sh",
    "-l nodes=2:ppn=2 a.sh",
    "-o /nosuchdir/x a.sh",
    "-v A=1,B=2 a.sh",
    "-V a.sh",
    "-a 2512312359 a.sh",
    "-h a.sh",
    "-a 202001010000 a.sh",
    "-S /no/such a.sh",
    "-l select=2:ncpus=1:mpiprocs=2,walltime=00:01:00 a.sh",
    "-- /bin/echo hello",
    "-- nosuchprogram",
    "-l select=1+1 a.sh",
    "-l select=2:ngpus=2:mpiprocs=2:ompthreads=1 a.sh",
    "-W umask=999 a.sh",
    "-l walltime= a.sh",
    "-l select=1 -l place=scatter:excl a.sh",
    "-l ngpus=1 a.sh",
    "-l select=1,select=2 a.sh",
    "-q '' a.sh",
    "-q @pbshead a.sh",
    "-A acc a.sh",
    "-o out.txt -j oe a.sh",
    "-W group_list=gt00 a.sh",
    """-v 'A="x,y",B=2' a.sh""",
    """-v "A='x,y',B=2" a.sh""",
    "-v 'A=x y' a.sh",
    "-v 1A=3 a.sh",
    "-v '' a.sh",
    "-C '#XX' gap.sh",
    "late.sh",
    "empty.sh",
    "''",
    "-",
    "",
    "-N fromstdin -",
    "-f a.sh",
    "-e e.txt -o o.txt a.sh",
]


@pytest.mark.parametrize("words", ACCEPTED)
def test_what_qsub_accepts(ask, words):
    out, err, status = ask(f"qsub {words}", stdin="echo stdin\n")
    assert (out, re.sub(r"^hint: .*\n", "", err), status) == (f"0.{SERVER}\n", "", 0)


def test_an_array_prints_its_brackets_and_z_nothing(ask):
    assert ask("qsub -J 0-2 a.sh") == (f"0[].{SERVER}\n", "", 0)
    assert ask("qsub -z a.sh") == ("", "", 0)


def test_our_own_notes_go_to_stderr(ask):
    out, err, status = ask("qsub -M a@b -m abe a.sh")
    assert (out, status) == (f"0.{SERVER}\n", 0) and "without effect" in err


# Messages that say what to do -----------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (
            "-v 'OPTIONS=-g 0,1' a.sh",
            """a comma separates variables; if it belongs to a value, quote that: -v "OPTIONS='-g 0,1'\"""",
        ),
        (
            "-v OPTIONS=--epoch 2 a.sh",
            'these would be several scripts: 2, a.sh; quote a value that has spaces, as in -v "OPTIONS=--epoch 2"',
        ),
        ("-v TRAKC a.sh", "'TRAKC' is not a variable of this shell; give it a value: -v NAME=value"),
        ("-l gpu_memory=300 a.sh", "a number with kb, mb, gb or tb, as in -l gpu_memory=300mb, or unlimited"),
        ("-l network=fast a.sh", "a number with mbit or gbit, as in -l network=100mbit, or none"),
        ("-W nosuch=1 a.sh", "-W knows no attribute nosuch"),
        ("crlf.sh", "its lines end with CR LF, as on Windows; remove each CR with: sed -i 's/\\r$//' SCRIPT"),
    ],
)
def test_a_refusal_says_what_to_do(ask, words, hint):
    _, err, status = ask(f"qsub {words}")
    assert status and err.splitlines()[-1] == f"hint: {hint}"


def test_a_script_in_utf_16_is_hinted_at(ask):
    Path("wide.sh").write_bytes("#PBS -N wide\nls\n".encode("utf-16"))
    assert "hint: the script is in UTF-16" in ask("qsub wide.sh")[1]


def test_a_working_directory_that_is_gone_is_one_sentence_of_qsub(ask, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    _, err, status = ask(f"qsub {tmp_path}/work/a.sh")
    assert status and err.startswith("qsub: the working directory no longer exists") and err.count("\n") == 1


def test_the_hint_about_a_comma_is_a_command_that_works(ask):
    assert ask("""qsub -v "OPTIONS='-g 0,1'" a.sh""")[2] == 0
    assert "OPTIONS=-g 0,1," in ask("qstat -f 0")[0].replace("\n\t", "")


def test_a_script_of_another_folder_is_found_for_the_student(ask):
    _, err, _ = ask("qsub run_single_gpu_training.sh")
    assert re.search(
        rf"^hint: this folder is {re.escape(os.getcwd())}; the script is in .*/exercises/01_single_gpu$",
        err,
        re.MULTILINE,
    )


def test_a_job_that_no_node_can_ever_run_is_announced_as_such(ask):
    out, err, status = ask("qsub -l select=2:ncpus=36 a.sh")
    assert (out, status) == (f"0.{SERVER}\n", 0)
    assert (
        err
        == "hint: this job will wait forever, because it asks for more than there is (Insufficient amount of resource:"
        " ncpus (R: 72 A: 8 T: 8)): 2 nodes with ncpus=4 and ngpus=2 each; `qdel 0` deletes it\n"
    )


def test_a_forgotten_track_is_noticed(ask, tmp_path):
    for track, text in (("pytorch", "# PUT YOUR CODE: `device`\n"), ("chainer", "")):
        (tmp_path / "work" / track).mkdir()
        (tmp_path / "work" / track / "train.py").write_text(text)
    (tmp_path / "work/train.sh").write_text('python "${TRACK:-pytorch}/train.py"\n')
    note = (
        "hint: this job runs pytorch/train.py, which still has gaps; for the other track, submit it with -v"
        " TRACK=chainer\n"
    )
    assert ask("qsub train.sh") == (f"0.{SERVER}\n", note, 0)
    assert ask("qsub -v TRACK=chainer train.sh") == (f"1.{SERVER}\n", "", 0)


def test_a_variable_that_a_script_asks_for_is_missed_at_once(ask, tmp_path):
    (tmp_path / "work/run.sh").write_text(': "${SCRIPT:?say which script to run}"\n')
    note = "hint: this job will end at once, without SCRIPT: say which script to run\n"
    assert ask("qsub run.sh") == (f"0.{SERVER}\n", note, 0)
    assert ask("qsub -v SCRIPT=a.py run.sh") == (f"1.{SERVER}\n", "", 0)


def test_a_site_has_a_longest_walltime(ask, tmp_path):
    (tmp_path / "site.toml").write_text('walltime = "00:10:00"\n' + SITE)
    _, err, status = ask("qsub -l walltime=00:10:01 a.sh")
    assert status == 188
    assert (
        err
        == "qsub: Job violates queue and/or server resource limits\nhint: this queue's longest walltime is 00:10:00\n"
    )
    assert ask("qsub a.sh")[2] == 0
    assert "    Resource_List.walltime = 00:10:00\n" in ask("qstat -f 0")[0], "a job that asks for none gets it"
    assert "    resources_max.walltime = 00:10:00\n" in ask("qstat -Qf lecture")[0]
    assert "lecture            --      --    00:10:00  --      0     0   --   E R\n" in ask("qstat -q")[0]


# qstat ------------------------------------------------------------------------------

PLAIN = """\
Job id            Name             User              Time Use S Queue
----------------  ---------------- ----------------  -------- - -----
"""
ALL = """
pbshead: 
                                                            Req'd  Req'd   Elap
Job ID          Username Queue    Jobname    SessID NDS TSK Memory Time  S Time
--------------- -------- -------- ---------- ------ --- --- ------ ----- - -----
"""  # noqa: W291
WIDE = """
pbshead: 
                                                                                                   Req'd  Req'd   Elap
Job ID                         Username        Queue           Jobname         SessID   NDS  TSK   Memory Time  S Time
------------------------------ --------------- --------------- --------------- -------- ---- ----- ------ ----- - -----
"""  # noqa: W291
LINE = "0.pbshead       student  lecture  run1         1390   1   1    --    --  R 00:00"
RUNNING = [
    ("qstat 0", PLAIN + "0.pbshead         run1             student           00:00:00 R lecture         \n"),
    ("qstat -t 0", PLAIN + "0.pbshead         run1             student           00:00:00 R lecture         \n"),
    (
        "qstat -p 0",
        PLAIN.replace("Time Use", " % done ")
        + "0.pbshead         run1             student                --  R lecture         \n",
    ),
    *((f"qstat {flags}", f"{ALL}{LINE}\n") for flags in ("-a 0", "-H 0", "-r", "-u student", "-G 0")),
    ("qstat -n 0", f"{ALL}{LINE}\n   node1/0\n"),
    ("qstat -n1 0", f"{ALL}{LINE} node1/0\n"),
    ("qstat -s 0", f"{ALL}{LINE}\n   Job run at Sun Nov 22 at 00:39 on (node1:ngpus=2:ncpus=1)\n"),
    (
        "qstat -wa 0",
        WIDE
        + "0.pbshead                      student         lecture         run1                1390    1     1    --   "
        " --  R 00:00\n",
    ),
    ("qstat -i", ""),
    ("qstat -u nosuchuser", ""),
]


@pytest.fixture
def running(ask, monkeypatch):
    """A job that began this moment, at the time of the recording."""
    monkeypatch.setenv("TZ", "UTC")
    import time

    time.tzset()
    ask("qsub -q lecture -l select=1:ngpus=2 -N run1 a.sh")
    started()
    monkeypatch.setattr("time.time", lambda: 1795307970.0)
    return ask


@pytest.mark.parametrize(("line", "answer"), RUNNING, ids=[line for line, _ in RUNNING])
def test_qstat_of_a_running_job(running, line, answer):
    assert running(line) == (answer, "", 0)


def test_qstat_p_is_the_share_of_the_walltime(ask, monkeypatch):
    ask("qsub -l walltime=16 a.sh")
    started()
    monkeypatch.setattr("time.time", lambda: 1795307970.0)
    assert " 50  R " in ask("qstat -p 0")[0]


def test_qstat_names_what_it_does_not_know_behind_what_it_shows(running):
    out, err, status = running("qstat 0 999999")
    assert out.endswith(" R lecture         \n") and (err, status) == ("qstat: Unknown Job Id 999999.pbshead\n", 153)


def test_qstat_f_breaks_lines_at_80_columns_behind_commas_where_there_are_some(running, monkeypatch):
    names = {
        "PATH": "/opt/pbs/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/home/student",
        "LOGNAME": "student",
        "SHELL": "/bin/bash",
    }
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    running("qsub -l select=100:ncpus=1 a.sh")
    started()
    out, _, _ = running("qstat -f 1")
    assert max(map(len, out.splitlines())) == 79
    assert "\n    comment = Can Never Run: Insufficient amount of resource: ncpus (R: 100 A: \n\t8 T: 8)\n" in out
    assert re.search(r"\n    Variable_List = (PBS_O_\w+=[^,]*,)+\n\t(PBS_O_\w+=[^,]*,)+\n\t", out)


def test_what_counts_is_a_number_in_json(running):
    answer = json.loads(running("qstat -f -F json 0")[0])
    job = answer["Jobs"]["0.pbshead"]
    assert (answer["timestamp"], answer["pbs_server"]) == (1795307970, SERVER)
    assert job["Resource_List"] == {"ncpus": 1, "ngpus": 2, "nodect": 1, "place": "free", "select": "1:ngpus=2"}
    assert [job[name] for name in ("session_id", "substate", "run_count", "Priority")] == [1390, 42, 1, 0]
    assert running("qstat -f -F json 0")[0].startswith('{\n\t"timestamp":\t1795307970,\n')


REFUSED_BY_QSTAT = [
    ("qstat 999999", "qstat: Unknown Job Id 999999.pbshead\n", 153),
    ("qstat abc", "qstat: Unknown queue destination abc\n", 170),
    ("qstat -f nosuch", "qstat: Unknown queue destination nosuch\n", 170),
    ("qstat -Q nosuch", "qstat: Unknown queue nosuch\n", 170),
    ("qstat 5.otherserver", "qstat: illegally formed job identifier: 5.otherserver\n", 1),
    ("qstat 0x5", "qstat: illegally formed job identifier: 0x5\n", 1),
    ("qstat @nosuchhost", "Unknown Host.\nqstat: cannot connect to server pbshead (errno=15008)\n", 255),
    ("qdel 999999", "qdel: Unknown Job Id 999999.pbshead\n", 153),
    ("qdel 999999 999998", "qdel: Unknown Job Id 999999.pbshead\n", 153),
    ("qdel -W force 999999", "qdel: Unknown Job Id 999999.pbshead\n", 153),
    ("qdel abc", "qdel: illegally formed job identifier: abc\n", 1),
    ("qdel all", "qdel: illegally formed job identifier: all\n", 1),
    ("qdel", USAGE["qdel"], 2),
    ("qdel -Z 1", f"qdel: invalid option -- 'Z'\n{USAGE['qdel']}", 2),
    ("qdel -W bad 5", f"qdel: illegal -W value\n{USAGE['qdel']}", 2),
    ("qrls 999999", "qrls: Unknown Job Id 999999.pbshead\n", 153),
    ("qrls", "usage: qrls [-h hold_list] job_identifier...\n       qrls --version\n", 2),
    ("pbsnodes nosuch", "Node: nosuch,  Error: Unknown node \n", 1),
]


@pytest.mark.parametrize(("line", "says", "status"), REFUSED_BY_QSTAT)
def test_what_the_other_commands_refuse(ask, line, says, status):
    assert ask(line) == ("", says, status)


@pytest.mark.parametrize(("line", "status"), [("qstat -Z", 2), ("pbsnodes", 1), ("pbsnodes -Z", 1)])
def test_their_usage(ask, line, status):
    out, err, code = ask(line)
    assert (out, code) == ("", status) and "usage:" in err


def test_qdel_stops_at_the_first_job_that_it_cannot_delete(ask):
    ask("qsub -h a.sh")
    assert ask("qdel 999999 0")[2] == 153
    assert ask("qstat 0")[2] == 0


def test_jobs_that_ended(ask):
    ask("qsub a.sh")
    ended("0")
    assert ask("qdel 0") == ("", "qdel: Job has finished 0.pbshead\n", 35)
    assert ask("qstat 0") == (
        "",
        "qstat: 0.pbshead Job has finished, use -x or -H to obtain historical job information\n",
        35,
    )
    assert ask("qstat -x 0")[0].endswith(" F workq           \n")


def test_names_that_are_too_long_for_the_table_are_cut(ask):
    ask("qsub -h -N averyveryverylongname a.sh")
    assert (
        ask("qstat")[0] == PLAIN + "0.pbshead         averyveryverylo* student                  0 H workq           \n"
    )


QUEUES = """\
Queue              Max   Tot Ena Str   Que   Run   Hld   Wat   Trn   Ext Type
---------------- ----- ----- --- --- ----- ----- ----- ----- ----- ----- ----
workq                0     0 yes yes     0     0     0     0     0     0 Exe*
lecture              0     0 yes yes     0     0     0     0     0     0 Exe*
"""
LIMITS = """
server: pbshead

Queue            Memory CPU Time Walltime Node   Run   Que   Lm  State
---------------- ------ -------- -------- ---- ----- ----- ----  -----
workq              --      --       --     --      0     0   --   E R
lecture            --      --       --     --      0     0   --   E R
                                               ----- -----
                                                   0     0
"""
SERVERS = """\
Server             Max   Tot   Que   Run   Hld   Wat   Trn   Ext Status
---------------- ----- ----- ----- ----- ----- ----- ----- ----- -----------
pbshead              0     0     0     0     0     0     0     0 Active    
"""  # noqa: W291
FULL_QUEUE = """\
Queue: lecture
    queue_type = Execution
    total_jobs = 0
    state_count = Transit:0 Queued:0 Held:0 Waiting:0 Running:0 Exiting:0 Begun
	:0 
    enabled = True
    started = True

"""  # noqa: W291
NODES = """\
vnode           state           OS       hardware host            queue        mem     ncpus   nmics   ngpus  comment
--------------- --------------- -------- -------- --------------- ---------- -------- ------- ------- ------- ---------
node1           free            --       --       node1           --             24gb       4       0       2 --
node2           free            --       --       node2           --             24gb       4       0       2 --
"""
NODES_JOBS = """\
                                                        mem       ncpus   nmics   ngpus
vnode           state           njobs   run   susp      f/t        f/t     f/t     f/t   jobs
--------------- --------------- ------ ----- ------ ------------ ------- ------- ------- -------
node1           free                 0     0      0    24gb/24gb     4/4     0/0     2/2 --
node2           free                 0     0      0    24gb/24gb     4/4     0/0     2/2 --
"""


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("qstat -Q", QUEUES),
        ("qstat -q", LIMITS),
        ("qstat -B", SERVERS),
        ("qstat -Qf lecture", FULL_QUEUE),
        ("pbsnodes -aS", NODES),
        ("pbsnodes -aSj", NODES_JOBS),
        ("pbsnodes -l", ""),
    ],
)
def test_queues_server_and_nodes(ask, line, answer):
    assert ask(line) == (answer, "", 0)


def test_a_node_whose_cores_are_taken_is_busy_although_it_has_free_cpus(ask, monkeypatch):
    """On two cores, the CPUs of both nodes are the same two."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    ask("qsub -l select=1:ngpus=2 a.sh")
    started()
    states = [line.split()[1] for line in ask("pbsnodes -aSj")[0].splitlines()[3:]]
    assert states == ["job-busy", "job-busy"]


def test_every_course_folder_has_a_queue_of_its_own(ask, tmp_path, monkeypatch):
    monkeypatch.delenv("HANDSON_PBS_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for folder, number in (("one/handson", 0), ("one/handson", 1), ("other/handson", 0)):
        monkeypatch.setattr(store, "COURSE", tmp_path / folder)
        assert ask("qsub -h a.sh") == (f"{number}.{SERVER}\n", "", 0)
    assert [line[:6] for line in ask("qstat")[0].splitlines()[2:]] == ["0.pbsh"], (
        "the other folder's jobs are not in sight"
    )


def test_a_site_is_seen_as_soon_as_it_is_chosen_and_stays_that_of_unfinished_jobs(ask, tmp_path, monkeypatch):
    ask("qsub a.sh")
    ended("0")
    (tmp_path / "other.toml").write_text("[machine]\nnodes = 3\n")
    monkeypatch.setenv("HANDSON_SITE", str(tmp_path / "other.toml"))
    assert "node3" in ask("pbsnodes -aSj")[0]
    ask("qsub a.sh")
    monkeypatch.setenv("HANDSON_SITE", str(tmp_path / "site.toml"))
    assert "node3" in ask("pbsnodes -aSj")[0], "its job still waits there"


# Holding, changing, choosing --------------------------------------------------------


def test_a_held_job_says_so_and_is_released(ask):
    ask("qsub -h -N held a.sh")
    assert "    job_state = H\n" in ask("qstat -f 0")[0] and "    Hold_Types = u\n" in ask("qstat -f 0")[0]
    assert ask("qrls 0") == ("", "", 0)
    assert "    job_state = Q\n" in ask("qstat -f 0")[0]
    assert ask("qhold 0") == ("", "", 0)
    assert "    job_state = H\n" in ask("qstat -f 0")[0]


def test_qhold_of_a_running_job_lets_it_run(running):
    assert running("qhold 0") == ("", "", 0)
    assert "    job_state = R\n" in running("qstat -f 0")[0]


@pytest.mark.parametrize("name", ["qhold", "qsig", "qalter"])
def test_commands_on_jobs_name_those_that_there_are_none_of(ask, name):
    assert ask(f"{name} 7 8") == ("", f"{name}: Unknown Job Id 7.pbshead\n{name}: Unknown Job Id 8.pbshead\n", 153)
    out, err, status = ask(name)
    assert (out, status) == ("", 2) and err.startswith(f"usage: {name} ")
    assert ask("qstat -x")[0] == "" and not (store.home(create=False) / "jobs.sqlite").exists(), (
        "looking creates nothing"
    )


def test_a_waiting_job_can_be_changed(ask):
    ask("qsub -h -N before -l select=1:ncpus=1,walltime=10 a.sh")
    assert ask("qalter -N after -l walltime=20 -j oe -W umask=022 0") == ("", "", 0)
    listed = ask("qstat -f 0")[0]
    for line in (
        "Job_Name = after",
        "Join_Path = oe",
        "Resource_List.walltime = 00:00:20",
        "Resource_List.select = 1:ncpus=1",
        "umask = 022",
    ):
        assert f"    {line}\n" in listed
    assert ask("qalter -l select=0 0") == ("", f"qalter: {VALUE}\n", 166)
    assert ask("qalter -h n 0") == ("", "", 0)
    assert "    job_state = Q\n" in ask("qstat -f 0")[0]


def test_a_running_job_cannot_be_changed(running):
    assert running("qalter -N x 0") == ("", "qalter: Cannot modify attribute while job running  0.pbshead\n", 167)


def test_a_signal_needs_a_running_job_and_a_name(running):
    running("qsub -h a.sh")
    assert running("qsig 1") == ("", "qsig: Request invalid for state of job 1.pbshead\n", 168)
    assert running("qsig -s NOSUCH 0") == ("", "qsig: Unknown/illegal signal name 0.pbshead\n", 165)
    assert running("qsig -s SIGUSR1 0") == ("", "", 0)


@pytest.mark.parametrize(
    ("conditions", "chosen"),
    [
        ("", "012"),
        ("-N two", "1"),
        ("-s H", "2"),
        ("-s QR", "01"),
        ("-u nobody", ""),
        ("-u student", "012"),
        ("-l ncpus.gt.1", "1"),
        ("-l walltime.ge.60", "0"),
        ("-q lecture", "1"),
        ("-p .gt.0", "2"),
        ("-h u", "2"),
        ("-x -s F", "3"),
        ("-t c.gt.202001010000", "012"),
    ],
)
def test_qselect_prints_the_jobs_that_meet_all_conditions(ask, conditions, chosen):
    ask("qsub -l walltime=00:01:00 a.sh")
    ask("qsub -N two -q lecture -l select=2:ncpus=1 a.sh")
    ask("qsub -h -p 5 a.sh")
    ask("qsub a.sh")
    ended("3")
    assert ask(f"qselect {conditions}") == ("".join(f"{number}.pbshead\n" for number in chosen), "", 0)


@pytest.mark.parametrize("name", ["qmove", "qrerun", "qmgr"])
def test_commands_that_are_not_there_say_what_the_real_ones_do(ask, name):
    out, err, status = ask(f"{name} x")
    assert status == 1 and re.fullmatch(rf"{name}: the embedded PBS of the course has no {name}. A real one .*\n", err)


def test_every_command_tells_the_release_that_it_answers_like(ask):
    assert (
        ask("qstat --version")
        == ask("qalter --version")
        == (f"pbs_version = embedded PBS of the hands-on course, in the manner of {command.RELEASE}\n", "", 0)
    )


# Dependencies: better on purpose ------------------------------------------------------


def test_a_job_that_depends_on_a_failed_one_ends_instead_of_waiting(ask):
    """A real PBS deletes it without a comment, and `-W block=true` then waits forever."""
    ask("qsub a.sh")
    ended("0", exit_status=1)
    ask("qsub -W depend=afterok:0 a.sh")
    started()
    out, _, _ = ask("qstat -xf 1")
    assert "    job_state = F\n" in out
    assert "Job deleted as result of dependency on job 0.pbshead" in out.replace("\n\t", "")
