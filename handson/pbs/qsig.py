"""qsig: send a signal to the processes of running jobs."""

import signal

from handson.pbs import command

USAGE = """\
usage: qsig [-s signal] job_identifier...
       qsig --version"""


def main():
    command.step_aside("qsig")
    command.run("qsig", signal_all, USAGE)


def signal_all(words):
    found, names, behind = command.split(words, "s", "")
    wanted = found[-1][1] if found else "SIGTERM"
    return command.for_each_job("qsig", names + (behind or []), lambda name: send(name, wanted))


def send(name, wanted):
    """Send the signal `wanted` (INT, SIGINT or 2; or suspend, resume) to all processes of a running job. Raises
    PBSError."""
    from handson.pbs import machine, processes
    from handson.pbs.pbs_errors import PBSError, wrong_state

    with command.unfinished(name) as (_, job):
        if job["array"] or job["state"] not in "RE":
            raise wrong_state(f"{name}.{machine.server_name()}")
        number = {"suspend": signal.SIGSTOP, "resume": signal.SIGCONT}.get(wanted) or number_of(wanted)
        if number is None:
            raise PBSError(f"Unknown/illegal signal name {name}.{machine.server_name()}", 165)
        processes.send(processes.carrying(f"PBS_JOBCOOKIE={job['cookie']}"), number)


def number_of(text):
    """Return the signal with this name or number, or None if there is none. Signal 0 exists, and does nothing."""
    named = text if text.startswith("SIG") else f"SIG{text}"
    if text.isdecimal():
        return int(text) if int(text) in {0, *signal.valid_signals()} else None
    return getattr(signal.Signals, named, None) if named in signal.Signals.__members__ else None
