"""Every row of what a real PBS (OpenPBS 23.06) was seen to answer: printed text and exit status."""

import os
import re
import time
from pathlib import Path

import pytest
from pbs_harness import SERVER, mode, wait_until

A = "#!/bin/bash\necho hello\n"
pytestmark = pytest.mark.slow


@pytest.fixture
def refused(pbs):
    """Call qsub; what it says, its status; and see that nothing was stored."""

    def call(*arguments, script=A, name="a.sh"):
        pbs.script(script, name)
        done = pbs("qsub", *arguments)
        assert done.stdout == ""
        assert pbs("qstat", "-x").stdout == "", "a refused job was stored"
        return done.stderr, done.returncode

    return call


@pytest.mark.parametrize(
    "arguments, sentence, status",
    [
        (["nosuch.sh"], "qsub: script file:: No such file or directory\n", 1),
        (["-q", "nosuch", "a.sh"], "qsub: Unknown queue\n", 170),
        (["-l", "select=2:mpiprocs=two", "a.sh"], "qsub: Illegal attribute or resource value select.mpiprocs\n", 166),
        (["-l", "select=0", "a.sh"], "qsub: Illegal attribute or resource value\n", 166),
        (["-l", "select=2:foo=1", "a.sh"], "qsub: Unknown resource: foo\n", 187),
        (["-l", "foo=1", "a.sh"], "qsub: Unknown resource Resource_List.foo\n", 187),
        (["-l", "walltime=abc", "a.sh"], "qsub: Illegal attribute or resource value Resource_List.walltime\n", 166),
        (
            ["-l", "ncpus=2", "-l", "select=1", "a.sh"],
            'qsub: "-lresource=" cannot be used with "select" or "place", resource is: ncpus\n',
            5,
        ),
        (["-N", "x" * 231, "a.sh"], "qsub: Job name is too long \n", 2),
        (["-W", "group_list=nosuch", "a.sh"], "qsub: Bad GID for job execution\n", 197),
    ],
)
def test_a_wrong_submission_is_refused_in_the_words_of_pbs(refused, arguments, sentence, status):
    assert refused(*arguments) == (sentence, status)


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["-N", "has space", "a.sh"], "qsub: illegal -N value"),
        (["-j", "xx", "a.sh"], "qsub: illegal -j value"),
        (["-Z", "a.sh"], "qsub: invalid option -- 'Z'"),
    ],
)
def test_a_wrong_option_is_refused_with_the_usage(refused, arguments, sentence):
    said, status = refused(*arguments)
    assert status == 2
    first, second, *_, last = said.splitlines()
    assert first == sentence
    assert second == "usage: qsub [-a date_time] [-A account_string] [-c interval]"
    assert last == "       qsub --version"


def test_a_script_that_still_says_queue_in_brackets_names_an_unknown_queue(refused):
    assert refused("a.sh", script="#!/bin/bash\n#PBS -q (queue)\necho\n") == ("qsub: Unknown queue\n", 170)


@pytest.mark.parametrize(
    "arguments",
    [
        ["a.sh"],
        ["-j", "oe", "a.sh"],
        ["-l", "nodes=2:ppn=2", "a.sh"],
        ["-l", "select=1+1", "a.sh"],
        ["-l", "select=2:ncpus=1:mpiprocs=2,walltime=00:01:00", "a.sh"],
        ["-W", "depend=afterok:9999", "a.sh"],
        ["-h", "a.sh"],
        ["-a", time.strftime("%Y%m%d%H%M", time.localtime(time.time() + 86400)), "a.sh"],
        ["-V", "a.sh"],
        ["-v", "A=1,B=2", "a.sh"],
    ],
    ids=" ".join,
)
def test_a_right_submission_prints_the_job_id(pbs, arguments):
    pbs.script(A)
    done = pbs("qsub", *arguments)
    assert (done.stdout, done.stderr, done.returncode) == (f"0.{SERVER}\n", "", 0)


def test_an_array_prints_its_id_with_brackets(pbs):
    done = pbs("qsub", "-J", "0-2", pbs.script(A))
    assert (done.stdout, done.returncode) == (f"0[].{SERVER}\n", 0)
    pbs.finish("0[]")


@pytest.mark.parametrize("arguments, stdin", [([], "echo hello\n"), (["--", "/bin/echo", "hello"], "")], ids=["stdin", "command"])
def test_a_script_on_stdin_or_a_command_is_a_job_called_STDIN(pbs, arguments, stdin):
    done = pbs("qsub", *arguments, stdin=stdin)
    assert (done.stdout, done.returncode) == (f"0.{SERVER}\n", 0)
    assert pbs.finish("0")["Job_Name"] == "STDIN"
    assert (pbs.directory / "STDIN.o0").read_text() == "hello\n"


@pytest.mark.parametrize(
    "arguments, comment",
    [
        (["-l", "select=100:ncpus=1"], "Can Never Run: Insufficient amount of resource: ncpus (R: 100 A: 4 T: 4)"),
        (["-l", "select=3:ngpus=2", "-l", "place=scatter"], "Can Never Run: Not enough total nodes available"),
    ],
    ids=["ncpus", "nodes"],
)
def test_more_than_the_machine_has_stays_queued_and_says_why(pbs, arguments, comment):
    job_id = pbs.submit(*arguments, pbs.script(A))
    job = wait_until(lambda: pbs.full(job_id).get("comment") and pbs.full(job_id), "a comment")
    assert (job["job_state"], job["comment"]) == ("Q", comment)
    assert f"\n   {comment}\n" in pbs("qstat", "-s").stdout
    wait_until(lambda: not pbs.scheduler_lives(), "the scheduler leaves, as nothing can be done")


@pytest.mark.parametrize("command", ["qstat", "qdel"])
def test_an_unknown_job_is_named(pbs, command):
    done = pbs(command, "9999")
    assert (done.stdout, done.stderr, done.returncode) == ("", f"{command}: Unknown Job Id 9999.{SERVER}\n", 153)


def test_qdel_of_what_is_no_job_id(pbs):
    done = pbs("qdel", "abc")
    assert (done.stderr, done.returncode) == ("qdel: illegally formed job identifier: abc\n", 1)


def test_qstat_of_a_finished_job_says_how_to_see_it(pbs):
    pbs.finish(pbs.submit(pbs.script(A)))
    done = pbs("qstat", "0")
    assert done.stderr == f"qstat: 0.{SERVER} Job has finished, use -x or -H to obtain historical job information\n"
    assert done.returncode == 35


def test_output_files_are_private_and_named_after_the_job(pbs):
    pbs.finish(pbs.submit("-N", "named", pbs.script("echo out; echo err >&2\n")))
    pbs.finish(pbs.submit(pbs.script("echo out; echo err >&2\n", "joined.sh"), "-j", "oe"))
    files = {name: (pbs.directory / name).read_text() for name in os.listdir(pbs.directory) if re.search(r"\.[oe]\d+$", name)}
    assert files == {"named.o0": "out\n", "named.e0": "err\n", "joined.sh.o1": "out\nerr\n"}
    assert {mode(pbs.directory / name) for name in files} == {0o600}


def test_a_job_over_its_walltime_is_killed_and_its_output_says_so(pbs):
    output, job = pbs.run("echo begin\nexec sleep 100\n", "-l", "walltime=1")
    assert re.fullmatch(r"begin\n=>> PBS: job killed: walltime \d+ exceeded limit 1\n", output)
    assert job["Exit_status"] == "-29"


def test_a_running_job_that_is_deleted_leaves_its_output_so_far(pbs):
    job_id = pbs.submit(pbs.script("echo begin\ntouch begun\nsleep 100\n"), "-v", f"BEGUN={pbs.directory}/begun")
    wait_until((pbs.user_home / "begun").exists, "the job has begun")
    done = pbs("qdel", job_id)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    job = pbs.finish(job_id)
    assert job["comment"].startswith("Job run at ") and job["comment"].endswith(" and terminated")
    assert job["Exit_status"] == "271"  # 256 + TERM
    assert (pbs.directory / "a.sh.o0").read_text() == "begin\n"
    done = pbs("qdel", job_id)
    assert (done.stderr, done.returncode) == (f"qdel: Job has finished {job_id}.{SERVER}\n", 35)


def test_qstat_lists_jobs_in_the_layout_of_pbs(pbs):
    pbs.submit("-h", pbs.script(A))
    pbs.finish(pbs.submit("-N", "averyveryverylongname", pbs.script(A)))
    lines = pbs("qstat", "-x").stdout.splitlines()
    assert lines[0] == "Job id            Name             User              Time Use S Queue"
    assert lines[1] == "----------------  ---------------- ----------------  -------- - -----"
    user = pbs.full("0")["Job_Owner"].split("@")[0]
    assert lines[2] == f"{'0.' + SERVER:<16}  {'a.sh':<16} {user:<16}  {'0':>8} H lecture"
    assert lines[3] == f"{'1.' + SERVER:<16}  averyveryverylo* {user:<16}  00:00:00 F lecture"
    assert len(pbs("qstat").stdout.splitlines()) == 3, "without -x, finished jobs are not shown"


def test_qstat_a_shows_what_was_asked_for(pbs):
    directives = "-l select=2:ngpus=2:mpiprocs=2:ompthreads=1 -l place=scatter -l walltime=00:05:00 -N multi_node"
    pbs.submit("-h", *directives.split(), pbs.script(A))
    user = pbs.full("0")["Job_Owner"].split("@")[0]
    first, second, *lines = pbs("qstat", "-a").stdout.splitlines()
    assert (first, second.strip()) == ("", f"{SERVER}:")
    assert lines[0] == " " * 60 + "Req'd  Req'd   Elap"
    assert lines[1] == "Job ID          Username Queue    Jobname    SessID NDS TSK Memory Time  S Time"
    assert lines[2] == "--------------- -------- -------- ---------- ------ --- --- ------ ----- - -----"
    job_id = f"0.{SERVER}"[:15]
    assert lines[3].rstrip() == f"{job_id:<15} {user:<8.8} lecture  multi_node    --    2   2    --  00:05 H   --"


def test_qstat_xf_has_the_lines_a_reader_looks_for(pbs):
    pbs.script("#!/bin/bash\n#PBS -l select=2:ngpus=2:mpiprocs=2:ompthreads=1\n#PBS -l place=scatter\n#PBS -N multi_node\n", "run.sh")
    pbs.finish(pbs.submit("-l", "walltime=00:05:00", "-j", "oe", "run.sh"))
    job = pbs.full("0")
    now = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}")
    assert now.fullmatch(job["ctime"])
    assert job["Job_Owner"].endswith(f"@{SERVER}")
    assert re.fullmatch(r"00:00:\d\d", job["resources_used.walltime"])
    nodes = "(node1:ngpus=2:ncpus=1)+(node2:ngpus=2:ncpus=1)"
    assert re.fullmatch(rf"Job run at \w{{3}} \w{{3}} \d\d at \d\d:\d\d on {re.escape(nodes)} and finished", job["comment"])
    expected = {
        "Job_Name": "multi_node",
        "job_state": "F",
        "queue": "lecture",
        "Error_Path": f"{SERVER}:{pbs.directory}/multi_node.e0",
        "exec_host": "node1/0+node2/0",
        "exec_vnode": nodes,
        "Join_Path": "oe",
        "Output_Path": f"{SERVER}:{pbs.directory}/multi_node.o0",
        "Resource_List.mpiprocs": "4",
        "Resource_List.ncpus": "2",
        "Resource_List.ngpus": "4",
        "Resource_List.nodect": "2",
        "Resource_List.place": "scatter",
        "Resource_List.select": "2:ngpus=2:mpiprocs=2:ompthreads=1",
        "Resource_List.walltime": "00:05:00",
        "Exit_status": "0",
        "Submit_arguments": "-l walltime=00:05:00 -j oe run.sh",
    }
    assert {name: job.get(name) for name in expected} == expected
    assert pbs("qstat", "-xf", "0").stdout.startswith(f"Job Id: 0.{SERVER}\n    Job_Name = multi_node\n")


def test_pbsnodes_lists_the_nodes_in_the_layout_of_pbs(pbs):
    lines = pbs("pbsnodes", "-aSj").stdout.splitlines()
    assert lines[0] == " " * 56 + "mem       ncpus   nmics   ngpus"
    assert lines[1] == "vnode           state           njobs   run   susp      f/t        f/t     f/t     f/t   jobs"
    assert lines[2] == "--------------- --------------- ------ ----- ------ ------------ ------- ------- ------- -------"
    assert lines[3] == "node1           free                 0     0      0      8gb/8gb     2/2     0/0     2/2 --"
    assert lines[4].startswith("node2 ")


def test_inside_a_job_the_environment_is_that_of_pbs(pbs):
    text = "pwd\nenv -0 | sort -z | tr '\\0' '\\n'\necho --\ncat $PBS_NODEFILE"
    ask = "-l select=2:ngpus=2:mpiprocs=2:ompthreads=3 -l place=scatter -N named"
    output, job = pbs.run(text, *ask.split(), SECRET="1")
    environment, _, nodes = output.partition("--\n")
    directory, *lines = environment.splitlines()
    variables = dict(line.split("=", 1) for line in lines)
    assert directory == str(pbs.user_home)
    assert nodes.split() == ["node1", "node1", "node2", "node2"]
    expected = {
        "PATH": "/bin:/usr/bin",
        "PBS_ENVIRONMENT": "PBS_BATCH",
        "PBS_JOBID": f"0.{SERVER}",
        "PBS_JOBNAME": "named",
        "PBS_NODENUM": "0",
        "PBS_TASKNUM": "1",
        "PBS_QUEUE": "lecture",
        "PBS_JOBDIR": str(pbs.user_home),
        "PBS_O_HOME": str(pbs.user_home),
        "PBS_O_HOST": os.uname().nodename,
        "PBS_O_LOGNAME": job["Job_Owner"].split("@")[0],
        "PBS_O_PATH": pbs.environment["PATH"],
        "PBS_O_QUEUE": "lecture",
        "PBS_O_SHELL": "/bin/bash",
        "PBS_O_SYSTEM": "Linux",
        "PBS_O_WORKDIR": str(pbs.directory),
        "PBS_O_MAIL": "/var/mail/somebody",
        "OMP_NUM_THREADS": "3",
        "NCPUS": "3",
        "HOME": str(pbs.user_home),
    }
    assert {name: variables.get(name) for name in expected} == expected
    assert variables["PBS_MOMPORT"].isdigit() and re.fullmatch(r"[0-9A-F]{32}", variables["PBS_JOBCOOKIE"])
    assert "CUDA_VISIBLE_DEVICES" not in variables and "SECRET" not in variables
    assert not Path(variables["TMPDIR"]).exists(), "the job's own temporary directory goes with it"


def test_pbsdsh_runs_once_for_each_line_of_the_node_file(pbs):
    text = 'PATH="$PBS_O_PATH"\npbsdsh -- /bin/sh -c \'echo $HANDSON_NODE $PBS_NODENUM $PBS_TASKNUM\''
    output, _ = pbs.run(text, "-l", "select=2:ngpus=2:mpiprocs=2", "-l", "place=scatter")
    tasks = sorted(line.split() for line in output.splitlines())
    assert [task[:2] for task in tasks] == [["node1", "0"]] * 2 + [["node2", "1"]] * 2
    assert len({task[2] for task in tasks}) == 4
