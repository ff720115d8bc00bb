"""Jobs from qsub to their output, through the commands a student types."""

import contextlib
import json
import sqlite3
import sys
import time
from pathlib import Path

import pytest
from pbs_harness import PATIENCE, ROOT, SERVER, mode
from waiting import wait_until

SLEEP = "touch $HOME/begun.$PBS_JOBID\nsleep 100\n"
pytestmark = pytest.mark.thorough


def begun(pbs, job_id):
    return wait_until((pbs.user_home / f"begun.{job_id}.{SERVER}").exists, f"job {job_id} has begun")


def test_variables_reach_the_job(pbs):
    output, _ = pbs.run(
        'echo "$A,$B,$C,$TRACK"', "-v", 'A=1,B="x,y",C', "-v", 'TRACK=chainer,A=1,B="x,y",C', C="from outside"
    )
    assert output == "1,x,y,from outside,chainer\n"


def test_V_brings_the_whole_environment(pbs):
    output, _ = pbs.run(
        'echo "$SECRET $CUDA_VISIBLE_DEVICES"; echo "$PATH"', "-V", SECRET="a\nb", CUDA_VISIBLE_DEVICES="3"
    )
    assert output == f"a\nb 3\n{pbs.environment['PATH']}\n"


def test_directives_may_go_on_in_the_next_line_and_stand_behind_blanks(pbs):
    output, _ = pbs.run(
        "  #PBS -N indented\n\t#PBS -l select=1:ncpus=1:\\\nmpiprocs=2\nwc -l < $PBS_NODEFILE; echo $PBS_JOBNAME"
    )
    assert output == "2\nindented\n"


@pytest.mark.parametrize(
    "script, options, expected",
    [
        ("#!/usr/bin/env -S python3 -u\nimport sys; print('python', sys.argv[1:])\n", [], "python []\n"),
        ("#!/bin/sh\necho $0 | grep -c script\n", [], "1\n"),
        ("print('by -S')\n", ["-S", sys.executable], "by -S\n"),
        ("echo $BASH_VERSION | wc -l\n", ["-S", f"/bin/bash@{SERVER}"], "1\n"),
    ],
)
def test_the_interpreter_is_what_the_script_or_S_names(pbs, script, options, expected):
    assert pbs.run(script, *options)[0] == expected


def test_a_missing_interpreter_is_named_in_the_output(pbs):
    output, job = pbs.run("#!/no/such/shell\necho\n")
    assert output == "/no/such/shell: No such file or directory\n"
    assert job["Exit_status"] == "127" and job["comment"].endswith(" and failed")


def test_the_exit_status_is_the_scripts(pbs):
    _, job = pbs.run("exit 7\n")
    assert job["Exit_status"] == "7" and job["comment"].endswith(" and failed")
    _, job = pbs.run("kill -9 $$\n")
    assert job["Exit_status"] == "137"


def test_output_goes_where_o_and_e_say(pbs):
    (pbs.directory / "logs").mkdir()
    script = pbs.script("echo out; echo err >&2\n")
    pbs.finish(pbs.submit("-o", f"{SERVER}:logs", "-e", f"{pbs.directory}/named", script))
    pbs.finish(pbs.submit("-o", "/dev/null", "-e", "logs/", script))
    assert (pbs.directory / "logs" / f"0.{SERVER}.OU").read_text() == "out\n"
    assert (pbs.directory / "named").read_text() == "err\n"
    assert (pbs.directory / "logs" / f"1.{SERVER}.ER").read_text() == "err\n"
    assert Path("/dev/null").is_char_device()
    assert mode(pbs.directory / "named") == 0o600


def test_output_that_cannot_be_delivered_is_kept_and_the_comment_says_where(pbs):
    pbs.finish(pbs.submit("-j", "oe", "-o", "nowhere/out", pbs.script("echo out\n")))
    kept = pbs.home / "undelivered" / f"0.{SERVER}.OU"
    reason = (
        f"its output could not be written to {pbs.directory}/nowhere/out (No such file or directory) and is kept in"
        f" {kept}"
    )
    assert pbs.full("0")["comment"].endswith(f" and finished; {reason}")
    assert kept.read_text() == "out\n"


def test_files_that_a_job_writes_are_private_unless_umask_says_otherwise(pbs):
    pbs.run("touch private\n")
    pbs.run("touch public\n", "-W", "umask=022")
    assert (mode(pbs.user_home / "private"), mode(pbs.user_home / "public")) == (0o600, 0o644)
    assert (mode(pbs.directory / "a.sh.o0"), mode(pbs.directory / "a.sh.o1")) == (0o600, 0o644), "and so is the output"


def test_a_held_job_starts_when_it_is_released(pbs):
    job_id = pbs.submit("-h", pbs.script("echo out\n"))
    assert pbs.full(job_id)["Hold_Types"] == "u"
    assert not pbs.scheduler_lives(), "a held job keeps nobody up"
    assert pbs("qrls", job_id).returncode == 0
    assert pbs.finish(job_id)["Exit_status"] == "0"


def test_a_job_with_a_time_waits_for_it(pbs):
    def at(moment):
        return "-a", time.strftime("%Y%m%d%H%M.%S", time.localtime(moment))

    job_id = pbs.submit(*at(time.time() + 3600), pbs.script("echo out\n"))
    assert pbs.full(job_id)["job_state"] == "W"
    moment = time.time() + 1
    assert pbs("qalter", *at(moment), job_id).returncode == 0
    pbs.finish(job_id)
    assert time.time() >= int(moment)


def test_block_waits_and_gives_the_exit_status(pbs):
    done = pbs("qsub", "-W", "block=true", pbs.script("kill -9 $$\n"))
    assert (done.stdout, done.returncode) == (f"0.{SERVER}\n", 137)
    assert (pbs.directory / "a.sh.o0").exists()
    assert pbs("qsub", "-W", "block=true", pbs.script("#!/no/such/shell\n")).returncode == 127


def test_an_array_runs_its_sub_jobs(pbs):
    pbs.submit(
        *"-J 1-5:2 -j oe -o out.^array_index^ -N many".split(),
        pbs.script("echo $PBS_ARRAY_INDEX $PBS_JOBID $PBS_ARRAY_ID\n"),
    )
    array = pbs.finish("0[]")
    for index in (1, 3, 5):
        assert (pbs.directory / f"out.{index}").read_text() == f"{index} 0[{index}].{SERVER} 0[].{SERVER}\n"
    assert (array["array_indices_submitted"], array["Exit_status"]) == ("1-5:2", "0")
    listed = pbs("qstat", "-xt").stdout
    assert [line.split()[0] for line in listed.splitlines()[2:]] == [
        f"0[].{SERVER}",
        *(f"0[{i}].{SERVER}" for i in (1, 3, 5)),
    ]


def test_deleting_an_array_deletes_its_sub_jobs(pbs):
    pbs.submit("-J", "0-5", pbs.script(SLEEP))
    begun(pbs, "0[0]")
    assert pbs("qdel", "0[]").returncode == 0
    assert pbs.finish("0[]")["comment"].endswith(" and terminated")
    assert {pbs.state(f"0[{index}]") for index in range(6)} == {"F"}


def test_dependencies_form_a_chain(pbs):
    first = pbs.submit("-h", pbs.script("echo first >> $HOME/log\n", "1.sh"))
    second = pbs.submit("-W", f"depend=afterok:{first}", pbs.script("echo second >> $HOME/log; exit 1\n", "2.sh"))
    third = pbs.submit("-W", f"depend=afterany:{second}", pbs.script("echo third >> $HOME/log\n", "3.sh"))
    never = pbs.submit("-W", f"depend=afterok:{second}.{SERVER}", pbs.script("echo never >> $HOME/log\n", "4.sh"))
    job = pbs.full(second)
    assert (job["job_state"], job["Hold_Types"], job["depend"]) == ("H", "s", f"afterok:{first}.{SERVER}@{SERVER}")
    pbs("qrls", first)
    pbs.finish(third)
    assert pbs.finish(never)["comment"] == f"Job deleted as result of dependency on job {second}.{SERVER}"
    assert (pbs.user_home / "log").read_text() == "first\nsecond\nthird\n"


def test_force_does_not_wait_for_a_job_that_ignores_term(pbs):
    pbs.site.write_text(pbs.site.read_text().replace("0.3", "3000"))
    job_id = pbs.submit(pbs.script("trap '' TERM\n" + SLEEP.replace("sleep 100", "while :; do sleep 0.1; done")))
    begun(pbs, job_id)
    pbs("qdel", job_id)
    assert pbs.state(job_id) == "R"
    assert pbs("qdel", "-Wforce", job_id).returncode == 0
    assert pbs.finish(job_id)["Exit_status"] == "265"


def test_a_job_can_submit_a_job(pbs):
    pbs.script("echo inner\n", "inner.sh")
    output, _ = pbs.run('cd "$PBS_O_WORKDIR"; PATH="$PBS_O_PATH"; qsub inner.sh; qstat | wc -l\n')
    assert output == f"1.{SERVER}\n4\n"
    pbs.finish("1")
    assert (pbs.directory / "inner.sh.o1").read_text() == "inner\n"


def test_pbsdsh_can_be_told_where(pbs):
    text = """PATH="$PBS_O_PATH"
export LATE=1
pbsdsh -n 3 -- /bin/sh -c 'echo $HANDSON_NODE $PBS_NODENUM ${LATE:-unset} $PWD'
pbsdsh -n 4 -- /bin/sh -c 'echo $HANDSON_NODE; kill -9 $$'
pbsdsh -n 2 -- /bin/sh -c 'echo $HANDSON_NODE; exit 4'; echo $?
pbsdsh /bin/sh -c 'exit $PBS_NODENUM'; echo $?
pbsdsh -s -c 3 /bin/sh -c 'echo copy $PBS_TASKNUM'
pbsdsh -h node2 -- true 2>&1 | head -n 1
captured=$(pbsdsh -n 0 -- echo to the output of the job); echo "captured: $captured"
"""
    output, _ = pbs.run(text, "-l", "select=2:ngpus=2:mpiprocs=2", "-l", "place=scatter")
    assert output.splitlines() == [
        f"node2 1 unset {pbs.user_home}",
        *("node1", "pbsdsh: task 0x00000000 exit status 265"),
        *("node2", "pbsdsh: task 0x00000000 exit status 4", "0"),
        *("pbsdsh: task 0x00000002 exit status 1", "pbsdsh: task 0x00000003 exit status 1", "0"),
        *("copy 2", "copy 3", "copy 4"),
        "pbsdsh: invalid option -- 'h'",
        *("to the output of the job", "captured: "),
    ]


def test_a_signal_reaches_a_running_job(pbs):
    job_id = pbs.submit(
        "-j",
        "oe",
        pbs.script("trap 'echo got it; exit 0' USR1\ntouch $HOME/begun.$PBS_JOBID\nwhile :; do sleep 0.05; done\n"),
    )
    begun(pbs, job_id)
    assert pbs("qsig", "-s", "USR1", job_id).returncode == 0
    pbs.finish(job_id)
    assert "got it\n" in (pbs.directory / "a.sh.o0").read_text()


def test_pbsdsh_outside_a_job(pbs):
    done = pbs("pbsdsh", "--", "true")
    assert (done.stderr, done.returncode) == ("pbsdsh: not executing under PBS: use it inside a job script\n", 1)


def test_a_job_is_pinned_to_the_cores_of_its_node(pbs):
    text = "cat $HANDSON_NODES; echo; grep Cpus_allowed_list /proc/self/status\n"
    output, _ = pbs.run(text, "-l", "select=1:ngpus=1:host=node2")
    nodes, allowed = output.splitlines()
    cores = json.loads(nodes)["node2"]["cores"]
    assert len(cores) == 1 and allowed.split() == ["Cpus_allowed_list:", str(cores[0])]


def test_the_memory_of_a_gpu_is_what_the_job_asks_for_else_what_the_site_says(pbs):
    pbs.site.write_text(pbs.site.read_text() + 'gpu_memory = "300MB"\n')
    assert "     resources_available.gpu_memory = 307200kb\n" in pbs("pbsnodes", "node1").stdout
    look = "echo ${HANDSON_GPU_MEMORY:-none}\n"
    output, job = pbs.run(look, "-l", "gpu_memory=200mb", "-v", "HANDSON_GPU_MEMORY=2GB")
    assert (output, job["Resource_List.gpu_memory"]) == ("200mb\n", "200mb")
    assert [pbs.run(look, *words)[0] for words in (["-v", "HANDSON_GPU_MEMORY=2GB"], [])] == ["2GB\n", "300MB\n"]
    changed = pbs.submit("-h", "-j", "oe", "-l", "gpu_memory=200mb", "a.sh")
    assert pbs("qalter", "-l", "gpu_memory=100mb", changed).returncode == pbs("qrls", changed).returncode == 0
    pbs.finish(changed)
    assert (pbs.directory / f"a.sh.o{changed}").read_text() == "100mb\n"


def test_the_state_directory_is_private(pbs):
    pbs.home.mkdir(mode=0o755)
    pbs.submit("-h", "-v", "PASSWORD=secret", pbs.script("echo\n"))
    assert mode(pbs.home) == 0o700
    assert {mode(path) & 0o077 for path in pbs.home.rglob("*")} == {0}


def age(pbs, job_id, seconds):
    """Let a job have ended earlier than it has."""
    with contextlib.closing(sqlite3.connect(pbs.home / "jobs.sqlite", timeout=PATIENCE)) as db, db:
        db.execute(
            "UPDATE jobs SET data = json_set(data, '$.obittime', json_extract(data, '$.obittime') - ?) WHERE id = ?",
            [seconds, job_id],
        )


def test_jobs_that_ended_two_weeks_ago_are_forgotten(pbs):
    week = 7 * 24 * 3600
    pbs.script("echo\n")
    old, recent, needed = (pbs.submit("a.sh") for _ in range(3))
    array = pbs.submit("-J", "1-2", "a.sh")
    for job_id in (old, recent, needed, array):
        pbs.finish(job_id)
    wait_until(lambda: not pbs.scheduler_lives(), "the scheduler goes, and the next looks for what is old")
    for job_id, weeks in (old, 2.1), (recent, 1.9), (needed, 2.1), (array, 2.1):
        age(pbs, job_id, weeks * week)
    waits = pbs.submit("-h", "-W", f"depend=afterok:{needed}", "a.sh")
    last = pbs.submit("a.sh")
    pbs.finish(last)
    listed = [line.split(".")[0] for line in pbs("qstat", "-xt").stdout.splitlines()[2:]]
    assert listed == [recent, needed, waits, last], "neither the old job nor the array with its sub-jobs"
    assert (pbs.directory / f"a.sh.o{old}").exists(), "its output stays"
    assert pbs.submit("-h", "a.sh") == str(int(last) + 1), "no number is given twice"


def test_qsub_does_not_wait_for_the_job(pbs):
    job = pbs.submit(pbs.script("until [ -e $HOME/go ]; do sleep 0.02; done\n"))
    (pbs.user_home / "go").touch()
    pbs.finish(job)


def test_qstat_shows_the_cpu_time_that_a_running_job_has_used_so_far(pbs):
    job_id = pbs.submit(pbs.script("sh -c 'ulimit -t 2; while :; do :; done'\n" + SLEEP))
    begun(pbs, job_id)
    shown = {pbs("qstat").stdout.splitlines()[2].split()[3], pbs.full(job_id)["resources_used.cput"]}
    assert shown <= {"00:00:01", "00:00:02"}


def test_a_stored_job_is_announced_even_if_the_queue_cannot_be_started(pbs):
    code = (
        f"import sys; sys.path.append({str(ROOT)!r}); from handson.pbs import processes, qsub\n"
        "def spawn(*_, **__): raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
        "processes.spawn = spawn; sys.argv[0] = 'qsub'; qsub.main()"
    )
    done = pbs(sys.executable, "-c", code, "--", "/bin/echo", "hello")
    assert (done.stdout, done.returncode) == (f"0.{SERVER}\n", 0)
    assert done.stderr.startswith(
        "qsub: the job is stored, but the queue could not be started (Resource temporarily unavailable): "
    )
    pbs("qstat")
    pbs.finish("0")
