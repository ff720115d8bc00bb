"""pbsdsh: run a command on the nodes of the job it is called in, once for each line of the node file.

As under a real PBS, what it starts has the environment the job began with (not what the script exported since), and starts in the
home directory.
"""

import os
import signal
import sys
from pathlib import Path

from handson.pbs import command

USAGE = """\
usage: pbsdsh [-c copies] [-s] [-v] [-o] [--] program [program_args ...]
       pbsdsh [-n vnode_index] [-s] [-v] [-o] [--] program [program_args ...]
       pbsdsh [-h hostname] [-s] [-v] [-o] [--] program [program_args ...]
       pbsdsh --version"""


def main():
    command.step_aside("pbsdsh")
    command.run("pbsdsh", run_everywhere, USAGE)


def run_everywhere(words):
    from handson.pbs.errors import PBSError

    if words == ["--version"]:
        print("pbs_version = embedded PBS of the hands-on course, in the manner of 23.06")
        return 0
    options, program = parse(words)
    if not {"PBS_JOBID", "PBS_NODEFILE", "HANDSON_NODES"} <= os.environ.keys():
        raise PBSError("not executing under PBS: use it inside a job script", 1)
    tasks = choose(Path(os.environ["PBS_NODEFILE"]).read_text().split(), options)
    running, status = {}, 0
    forward_signals(running)
    if "s" in options:  # one after the other
        for task in tasks:
            status = max(status, wait_for({start(*task, program): task}, "v" in options))
        return status
    for task in tasks:
        running[start(*task, program)] = task
    return wait_for(running, "v" in options)


def parse(words):
    """({letter: value}, the program and its arguments)"""
    from handson.pbs.errors import PBSError

    options, words = {}, list(words)
    while words and words[0].startswith("-") and words[0] != "--":
        letter, value = words[0][1:2], words.pop(0)[2:]
        if letter in ("c", "n", "h"):
            if not value and not words:
                raise PBSError(f"option requires an argument -- '{letter}'", 2, usage=True)
            options[letter] = value or words.pop(0)
            if letter != "h" and not options[letter].isdecimal():
                raise PBSError(f"illegal -{letter} value", 2, usage=True)
        elif letter in ("s", "v", "o"):
            options[letter] = True
        else:
            raise PBSError(f"invalid option -- '{letter}'", 2, usage=True)
    if words[:1] == ["--"]:
        words.pop(0)
    if not words:
        raise PBSError("no program to run", 2, usage=True)
    return options, words


def choose(lines, options):
    """[(node, PBS_NODENUM, PBS_TASKNUM), ...] of the tasks to start; a job's first task is its script."""
    from handson.pbs.errors import PBSError

    names = list(dict.fromkeys(lines))
    if "h" in options:
        if options["h"] not in names:
            raise PBSError(f"host {options['h']} is not one of the job's: {' '.join(names)}", 1)
        lines = [options["h"]]
    elif "n" in options:
        if int(options["n"]) >= len(lines):
            raise PBSError(f"-n {options['n']}: the job's node file has only the lines 0 to {len(lines) - 1}", 1)
        lines = [lines[int(options["n"])]]
    elif "c" in options:
        lines = [lines[index % len(lines)] for index in range(int(options["c"]))]
    return [(name, names.index(name), number) for number, name in enumerate(lines, start=2)]


def start(node, nodenum, tasknum, program):
    import json
    import subprocess

    from handson.pbs import processes

    environment = json.loads(Path(os.environ["HANDSON_NODES"]).with_name("environment.json").read_text())
    environment |= {"PBS_NODENUM": str(nodenum), "PBS_TASKNUM": str(tasknum)}
    return subprocess.Popen(
        processes.module_command("handson.cluster.nodes", node, *program),
        stdin=subprocess.DEVNULL,
        cwd=environment["HOME"],
        env=environment,
    )


def wait_for(running, verbose):
    """Wait for the tasks; the exit status is the highest of theirs (of one killed by a signal: 128 + its number)."""
    status = 0
    for process, (node, _, tasknum) in list(running.items()):
        code = process.wait()
        code = 128 - code if code < 0 else code
        if verbose:
            print(f"pbsdsh: task {tasknum} on {node} exit status {code}", file=sys.stderr)
        status = max(status, code)
    return status


def forward_signals(running):
    def forward(number, _):
        for process in running:
            if process.poll() is None:
                process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
