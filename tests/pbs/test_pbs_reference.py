"""What jobs met under a real PBS (OpenPBS 23.06): their environment, output and end. test_pbs_answers.py has what the
commands answer."""

import os
import re
from pathlib import Path

import pytest
from pbs_harness import SERVER, mode
from waiting import wait_until

A = "#!/bin/bash\necho hello\n"
pytestmark = pytest.mark.thorough


@pytest.mark.parametrize(
    "arguments, stdin", [([], "echo hello\n"), (["--", "/bin/echo", "hello"], "")], ids=["stdin", "command"]
)
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


def test_output_files_are_private_and_named_after_the_job(pbs):
    pbs.finish(pbs.submit("-N", "named", pbs.script("echo out; echo err >&2\n")))
    pbs.finish(pbs.submit(pbs.script("echo out; echo err >&2\n", "joined.sh"), "-j", "oe"))
    files = {
        name: (pbs.directory / name).read_text() for name in os.listdir(pbs.directory) if re.search(r"\.[oe]\d+$", name)
    }
    assert files == {"named.o0": "out\n", "named.e0": "err\n", "joined.sh.o1": "out\nerr\n"}
    assert {mode(pbs.directory / name) for name in files} == {0o600}


def test_a_job_over_its_walltime_is_killed_and_its_output_says_so(pbs):
    output, job = pbs.run("echo begin\nexec sleep 100\n", "-l", "walltime=1")
    assert re.fullmatch(r"begin\n=>> PBS: job killed: walltime \d+ exceeded limit 1\n", output)
    assert job["Exit_status"] == "-29" and job["comment"].endswith(" and exceeded resource walltime")


def test_a_running_job_that_is_deleted_leaves_its_output_so_far(pbs):
    job_id = pbs.submit(pbs.script("echo begin\ntouch begun\nsleep 100\n"), "-v", f"BEGUN={pbs.directory}/begun")
    wait_until((pbs.user_home / "begun").exists, "the job has begun")
    done = pbs("qdel", job_id)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    job = pbs.finish(job_id)
    assert job["comment"].startswith("Job run at ") and job["comment"].endswith(" and terminated")
    assert job["Exit_status"] == "271"  # 256 + TERM
    assert (pbs.directory / "a.sh.o0").read_text() == "begin\n"
    assert (pbs.directory / "a.sh.e0").read_text().splitlines()[-1].startswith("=>> PBS: job killed: deleted by ")
    done = pbs("qdel", job_id)
    assert (done.stderr, done.returncode) == (f"qdel: Job has finished {job_id}.{SERVER}\n", 35)


def test_qstat_xf_has_the_lines_a_reader_looks_for(pbs):
    pbs.script(
        "#!/bin/bash\n#PBS -l select=2:ngpus=2:mpiprocs=2:ompthreads=1\n#PBS -l place=scatter\n#PBS -N multi_node\n",
        "run.sh",
    )
    pbs.finish(pbs.submit("-l", "walltime=00:05:00", "-j", "oe", "run.sh"))
    job = pbs.full("0")
    now = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}")
    assert now.fullmatch(job["ctime"])
    assert job["Job_Owner"].endswith(f"@{SERVER}")
    assert re.fullmatch(r"00:00:\d\d", job["resources_used.walltime"])
    nodes = "(node1:ngpus=2:ncpus=1)+(node2:ngpus=2:ncpus=1)"
    assert re.fullmatch(
        rf"Job run at \w{{3}} \w{{3}} \d\d at \d\d:\d\d on {re.escape(nodes)} and finished", job["comment"]
    )
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
        "Submit_Host": SERVER,
    }
    used = [name.partition(".")[2] for name in job if name.startswith("resources_used.")]
    assert used == ["cpupercent", "cput", "mem", "ncpus", "vmem", "walltime"]
    assert {name: job.get(name) for name in expected} == expected
    assert pbs("qstat", "-xf", "0").stdout.startswith(f"Job Id: 0.{SERVER}\n    Job_Name = multi_node\n")


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
        "PATH": pbs.login_path(),
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
    assert Path(variables["TMPDIR"]).name.startswith(f"pbs.0.{SERVER}")
    assert not Path(variables["TMPDIR"]).exists(), "the job's own temporary directory goes with it"


def test_pbsdsh_runs_once_for_each_line_of_the_node_file(pbs):
    text = "PATH=\"$PBS_O_PATH\"\npbsdsh -- /bin/sh -c 'echo $HANDSON_NODE $PBS_NODENUM $PBS_TASKNUM'"
    output, _ = pbs.run(text, "-l", "select=2:ngpus=2:mpiprocs=2", "-l", "place=scatter")
    tasks = sorted(line.split() for line in output.splitlines())
    assert [task[:2] for task in tasks] == [["node1", "0"]] * 2 + [["node2", "1"]] * 2
    assert len({task[2] for task in tasks}) == 4
