"""Follow a batch job, in a notebook or a program: show what it waits for, its output line by line, and how it ended.

This works with the embedded PBS, a real PBS and Slurm: it asks the batch system to which ``qsub`` submits.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass, replace
from pathlib import Path

from handson import linux
from handson.errors import OneSentence
from handson.ipython import in_notebook
from handson.language import marked, translated
from handson.pbs import command, jobs, scheduler
from handson.pbs.pbs_errors import PBSError
from handson.words import counted

LIMIT = 3600  # seconds to wait for a job by default
PATIENCE = 60  # seconds for a batch system to answer
DELIVERY = 60  # seconds, after a job's end, until its output must be there
START = 3  # seconds of a job without output, after which possible reasons are printed
CARE = 2  # seconds after which to check again that the embedded PBS still has a scheduler
SILENCE = 60  # seconds without an answer about a running job, after which that is printed
# variables with the locations of data, frameworks and NVIDIA's MPS, and the choice of the device
OF_COURSE = ("HANDSON_DATA", "HANDSON_FRAMEWORKS", "HANDSON_DEVICE", "CUDA_MPS_PIPE_DIRECTORY")
# error texts of a batch system whose server cannot be reached
AWAY = re.compile("connect|contact|time|communicat|has not answered", re.IGNORECASE)
CORES = re.compile(r"Insufficient amount of resource: physical cores \(R: (\d+) A: (\d+) T: (\d+)\)")
# error texts of a real batch system that has forgotten a job
GONE = re.compile("unknown job|has finished|invalid job id|job history", re.IGNORECASE)
# lines of training scripts
EPOCHS, EPOCH = re.compile(r"(?:# epoch|Num epoch): (\d+)\s*"), re.compile(r"(\d+) +\d+\.\d+ ")


class JobFailed(OneSentence, RuntimeError):
    """A job did not end well; the message names the job and the place to look."""

    status = 1


@dataclass
class Job:
    """The report of a batch system on a job."""

    waits: str = ""  # the reason why it waits, and the place
    over: bool = False
    problem: str = ""  # how it ended, if not well
    output: str | None = None  # the file that has its output, or will have it
    # why the batch system does not report on the job; the other fields then contain its last report
    silence: str = ""


def submit(folder, *arguments, **variables):
    """Run ``qsub arguments`` in `folder`, and pass `variables` to the job. Return the job's id.

    The last of the arguments is the job script. Raises JobFailed with qsub's message.
    """
    arguments = [*sending(variables), *arguments]
    done = subprocess.run(
        ["qsub", *arguments],
        cwd=folder,
        env=environment() | variables,
        text=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    if done.returncode:
        script = Path(folder, *arguments[-1:])
        open_ = script.is_file() and "PUT YOUR CODE" in script.read_text(errors="replace")
        advice = f"; first fill the gaps of {script} (PUT YOUR CODE)" if open_ else ""
        said = "; ".join(
            re.sub(r"^usage: .*?(^hint: |\Z)", r"\1", done.stderr, flags=re.MULTILINE | re.DOTALL).splitlines()
        )
        raise JobFailed(f"qsub refused {' '.join(arguments)} in {folder}: {said}{advice}")
    return done.stdout.split()[-1]


def sending(variables):
    """Return the options with which qsub passes these variables of its environment to a job, whatever their values, and
    the course's own variables that are set."""
    names = [*variables, *(name for name in OF_COURSE if name in os.environ and name not in variables)]
    if not names:
        return []
    # OpenPBS 23.06.06 ignores -V here; Slurm's qsub splits a value of -v at its spaces
    return ["-V"] if command.batch_system()[0] == "slurm" else ["-v", ",".join(names)]


def follow(job_id, output=None, say=print, limit=LIMIT):
    """Print what the job waits for, then each line of its output, until the job has ended; `limit` is in seconds.

    In terminals and notebooks, a bar counts the epochs of a training run. Ctrl-C (in notebooks: the stop button) only
    stops this function; the job continues, and another call starts again. output: the file with the job's output, if it
    is not the one that the batch system names. Raises JobFailed if there is no such job, or if it fails or takes too
    long.
    """
    try:
        _follow(str(job_id), output, say, limit)
    except (KeyboardInterrupt, SystemExit) as stop:  # handson's commands convert Ctrl-C to SystemExit
        sentence = (
            f"Job {job_id} continues without being followed: follow({str(job_id)!r}) shows it again, and"
            f" `{_ending(job_id)}` ends it."
        )
        say(translated(sentence))
        if isinstance(stop, SystemExit):
            raise


def wait_until_it_runs(job_id, limit=LIMIT):
    """Return as soon as a job has started, has ended already, or is unknown; `limit` is in seconds. Raises JobFailed if
    the job waits longer."""
    end = time.monotonic() + limit
    with contextlib.suppress(TimeoutError):  # busy servers do not always answer
        while re.search(r"job_state = [QHW]", _tell("qstat", "-xf", str(job_id)) or _tell("qstat", "-f", str(job_id))):
            if time.monotonic() > end:
                raise JobFailed(f"job {job_id} has not started after {limit} seconds; `qstat -s` shows the reason")
            time.sleep(0.5)


def look(job_id):
    """Return the current Job; if the batch system does not answer, its `silence` gives the reason. Raises JobFailed if
    there is no such job."""
    return _look(_system(job_id), job_id, None, None)


def _system(job_id):
    """Return the system to which a job belongs: ids of Kubernetes name their site, as in kind/torchrun."""
    return "kubernetes" if "/" in job_id else command.batch_system()[0]


def _follow(job_id, output, say, limit):
    system = _system(job_id)
    begin, cared, heard, ended, job, shown, said = time.monotonic(), time.monotonic(), None, None, None, 0, ""
    with _epochs() as count:
        explain = _silence(job_id, say)
        while True:
            job = _look(system, job_id, job, output)
            now = time.monotonic()
            if not job.silence:
                heard = now
            elif (heard is None or now > heard + SILENCE) and job.silence != said:
                said = job.silence
                sentence = (
                    f"job {job_id}: the batch system does not report its state ({said}); it is asked again until"
                    " it does"
                )
                say(translated(sentence))
            if "Can Never Run" in job.waits:
                raise JobFailed(
                    f"job {job_id} would wait forever in {job.waits}: delete it ({_ending(job_id)}), and request less"
                )
            if not job.silence and job.waits not in ("", said):
                said = job.waits
                say(translated(f"job {job_id} waits in {said}"))
            path = next((path for path in (job.output, output) if path and os.path.exists(path)), None)
            lines, shown = _read(path, shown, whole=job.over) if path else ([], shown)
            for line in lines:
                count(line, say)
            if not (shown or job.waits or job.over):
                explain(now)
            ended = ended or job.over and now
            if ended and (path or job.problem or not (job.output or output)):
                break
            if ended and now > ended + DELIVERY:
                raise JobFailed(
                    f"job {job_id} has ended, but {DELIVERY} seconds later its output is not in {job.output or output}"
                )
            if now > begin + limit:
                raise JobFailed(
                    f"job {job_id} has not ended after {limit} seconds; look at it, or end it: {_ending(job_id)}"
                )
            if system == "embedded" and now > cared + CARE:
                cared = now
                with contextlib.suppress(OSError, PBSError):
                    scheduler.ensure()
            time.sleep(0.1 if system == "embedded" else 1)
    if job.problem:
        raise JobFailed(marked(f"job {job_id} {job.problem}") + (f"; its output is in {path}" if path else ""))


def _ending(job_id):
    """Return the command that ends a job."""
    site, _, training = str(job_id).partition("/")
    return f"python -m handson kubernetes delete {training} --site {site}" if training else f"qdel {job_id}"


def _silence(job_id, say):
    """Return a function ``explain(now)``, to be called while a job runs and has printed nothing. After START seconds it
    gives possible reasons, once."""
    since, said = None, False

    def explain(now):
        nonlocal since, said
        since = since or now
        if now > since + START and not said:
            said = True
            usual = (
                "Python takes some seconds to start on all ranks, and some batch systems bring the output at the end"
            )
            say(translated(f"job {job_id} has printed nothing yet: {usual}{_busy()}"))

    return explain


def _busy():
    """Return the end of a sentence if this machine is busy, so that a job may only be slow; otherwise ""."""
    with contextlib.suppress(OSError):
        running, cores = linux.running(), len(os.sched_getaffinity(0))
        if running > linux.BUSY * cores:
            return (
                f"; this machine is busy ({running} processes want {counted(cores, 'core')}), so that everything takes"
                " longer"
            )
    return ""


def _look(system, job_id, before, output):
    """Return the current Job; `before` is the previous one. Raises JobFailed if there is no such job."""
    try:
        now = {"embedded": _embedded, "pbs": _pbs, "slurm": _slurm, "kubernetes": _kubernetes}[system](job_id)
    except TimeoutError as silence:  # busy servers do not always answer
        if before is None and not AWAY.search(str(silence)):
            raise JobFailed(f"job {job_id} cannot be followed: {silence}") from None
        return replace(before or Job(), silence=str(silence))
    if now is None and before is None and not (output and os.path.exists(output)):
        name = {"embedded": "the embedded PBS", "pbs": "PBS", "slurm": "Slurm", "kubernetes": "Kubernetes"}[system]
        shown = "kubectl get jobs --all-namespaces" if system == "kubernetes" else "qstat -x"
        raise JobFailed(
            f"{name} does not know job {job_id}, or has forgotten it: `{shown}` shows the jobs that it knows"
        )
    # batch systems forget jobs soon after their end, Kubernetes after a day
    gone = "was deleted" if system == "kubernetes" else ""
    return now or Job(over=True, problem=gone, output=before and before.output)


def _embedded(job_id):
    try:
        job = jobs.job(job_id)
    except PBSError:
        return None
    why = _plainly(job["comment"]) or {
        "H": ("it is held, or it waits for another job"),
        "W": "its start time is later",
    }.get(job["state"])
    waits = marked(f"queue {job['queue']}: {why}") if why and job["state"] in "QHW" else ""
    over = job["state"] == "F"
    return Job(waits, over, _problem(job["exit_status"]) if over else "", job["output_path"])


def _pbs(job_id):
    # the first command is refused if the site keeps no history
    text = _tell("qstat", "-xf", job_id) or _tell("qstat", "-f", job_id)
    if not text:
        return None
    facts = dict(re.findall(r"^ +(\w+) = (.*)$", text.replace("\n\t", ""), re.MULTILINE))
    state, why = facts["job_state"], _plainly(facts.get("comment", ""))
    waits = marked(f"queue {facts['queue']}: {why}") if why and state in "QHW" else ""
    over = state in "FXC"
    path = facts.get("Error_Path" if facts.get("Join_Path") == "eo" else "Output_Path", "").partition(":")[2]
    return Job(waits, over, _problem(facts.get("Exit_status")) if over else "", path or None)


def _slurm(job_id):
    text = _tell("scontrol", "--oneliner", "show", "job", job_id)
    if not text:
        return None
    facts = dict(re.findall(r"(?:^| )([A-Z][\w/:]*)=(.*?)(?= [A-Z][\w/:]*=| *$)", text.splitlines()[0]))
    state = facts["JobState"]
    waits = (
        marked(f"partition {facts['Partition']}: {facts['Reason']}")
        if state == "PENDING" and facts["Reason"] != "None"
        else ""
    )
    over = state not in (
        "PENDING",
        "CONFIGURING",
        "RUNNING",
        "COMPLETING",
        "SUSPENDED",
        "STOPPED",
        "REQUEUED",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
    )
    status = facts["ExitCode"].partition(":")[0]
    problem = (
        "" if state == "COMPLETED" else _problem(status) if state == "FAILED" and status != "0" else f"ended as {state}"
    )
    return Job(waits, over, problem if over else "", facts.get("StdOut"))


def _kubernetes(job_id):
    # it takes a tenth of a second, which would delay all followers
    from handson.cluster.kubernetes import cluster_jobs as of_kubernetes

    found = of_kubernetes.look(job_id)
    return found and Job(*found)


def _plainly(comment):
    """Return PBS's comment on a waiting job. Comments that only the embedded PBS has are put into plain words."""
    cores = "it needs {} of the {} cores of this machine, and other jobs leave {} of them free"
    return CORES.sub(
        lambda found: cores.format(found[1], found[3], found[2]), (comment or "").removeprefix("Not Running: ")
    )


def _problem(status):
    """Return the meaning of the status of an ended job, as half a sentence, or "" if it ended well."""
    if status is None:
        return "was deleted before it ran"
    status = int(status)
    if status == -29:
        return f"was ended as it ran longer than its walltime (status -29){_busy()}"
    if status == 256 + signal.SIGTERM:
        return f"was deleted while it ran (status {status})"
    number = status - 256 if status > 256 else status - 128
    if number in set(signal.Signals):
        return f"ended with status {status}: it was killed by {signal.Signals(number).name}"
    return f"ended with status {status}" if status else ""


def _tell(*words):
    """Return the output of a command of a batch system, or "" if the system has forgotten the job. Raises TimeoutError
    with its message if it does not answer."""
    try:
        done = subprocess.run(words, env=environment(), text=True, capture_output=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{words[0]} has not answered for {PATIENCE} s") from None
    if done.returncode and not GONE.search(done.stderr):
        raise TimeoutError(
            "; ".join(done.stderr.split("\n")).strip("; ") or f"{words[0]} ended with status {done.returncode}"
        )
    return "" if done.returncode else done.stdout


def environment():
    """Return the environment with the course's batch commands on PATH, which a notebook's kernel may lack. Real
    commands come first."""
    return os.environ | {"PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def _read(path, begin, whole):
    """Return the lines of a file from byte `begin` on, and the number of the byte after them. The last line counts only
    if it is complete, or if the file is `whole`."""
    try:
        with open(path, "rb") as file:
            file.seek(begin)
            new = file.read()
    except OSError:
        return [], begin  # the output is being moved to its place
    new = new if whole else new[: new.rfind(b"\n") + 1]
    return new.decode(errors="replace").splitlines(), begin + len(new)


@contextlib.contextmanager
def _epochs():
    """Return a function ``count(line, say)`` that prints a line. In terminals and notebooks, a line that names an epoch
    also moves a bar."""
    from tqdm import tqdm

    with contextlib.ExitStack() as bars:
        advance = None

        def count(line, say):
            nonlocal advance
            with tqdm.external_write_mode(file=sys.stdout):
                say(line)
            if total := EPOCHS.fullmatch(line):
                advance = _bar(int(total[1]), bars)
            elif advance and (epoch := EPOCH.match(line)):
                advance(int(epoch[1]))

        yield count


def _bar(total, bars):
    """Show a bar of `total` epochs. Return the function that moves it to an epoch. In terminals, closing the ExitStack
    `bars` removes the bar."""
    if in_notebook():
        from IPython.display import ProgressBar

        bar = ProgressBar(total)
        bar.display()
        return lambda epoch: setattr(bar, "progress", epoch)
    if sys.stdout.isatty():
        from tqdm import tqdm

        bar = bars.enter_context(tqdm(total=total, unit="epoch", file=sys.stdout, leave=False))
        return lambda epoch: bar.update(epoch - bar.n)
    return None
