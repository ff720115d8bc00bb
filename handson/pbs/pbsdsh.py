"""pbsdsh: run a command on the nodes of the current job, once for each line of the node file.

As under a real PBS, each task has the environment with which the job began (not the script's later exports), starts in
the home directory, and writes to the job's output, even if pbsdsh's own output is redirected. pbsdsh itself ends with
0, and prints the status of tasks that failed.
"""

import os
import signal
from pathlib import Path

from handson.pbs import command

USAGE = """\
Usage: pbsdsh [-c copies][-s][-v][-o] -- program [args...]
       pbsdsh [-n node_index][-s][-v][-o] -- program [args...]
       pbsdsh --version
Where -c copies =  run a copy of "program" on the first "copies" nodes,
      -n node_index = run a copy of "program" on the "node_index"-th node,
      -s = forces synchronous execution,
      -v = forces verbose output.
      -o = no obits are waited for."""


def main():
    command.step_aside("pbsdsh")
    command.run("pbsdsh", run_everywhere, USAGE)


def run_everywhere(words):
    from handson.pbs.pbs_errors import PBSError

    options, program = parse(words)
    if not {"PBS_JOBID", "PBS_NODEFILE"} <= os.environ.keys():
        raise PBSError("not executing under PBS: use it inside a job script", 1)
    running = []
    forward_signals(running)
    for task, (node, nodenum, tasknum) in enumerate(
        choose(Path(os.environ["PBS_NODEFILE"]).read_text().split(), options)
    ):
        running.append(start(node, nodenum, tasknum, program))
        if "v" in options:
            print(f"pbsdsh: spawned task 0x{task:08X} on logical node {nodenum} event {tasknum}", flush=True)
        if "s" in options:  # one after another
            wait_for([(task, running[-1])], options)
    if "s" not in options:
        wait_for(list(enumerate(running)), options)


def parse(words):
    """Return ({letter: value}, the program and its arguments)."""
    from handson.pbs.pbs_errors import PBSError

    options, words = {}, list(words)
    while words and words[0].startswith("-") and words[0] != "--":
        letter, value = words[0][1:2], words.pop(0)[2:]
        if letter in ("c", "n"):
            if not value and not words:
                raise PBSError(f"option requires an argument -- '{letter}'", 1, usage=True)
            options[letter] = value or words.pop(0)
            if not options[letter].isdecimal():
                raise PBSError(f"illegal -{letter} value", 1, usage=True)
        elif letter in ("s", "v", "o"):
            options[letter] = True
        else:
            raise PBSError(f"invalid option -- '{letter}'", 1, usage=True)
    if words[:1] == ["--"]:
        words.pop(0)
    if not words:
        raise PBSError(status=1, usage=True)
    return options, words


def choose(lines, options):
    """Return [(node, PBS_NODENUM, PBS_TASKNUM), ...] of the tasks to start; a job's first task is its script."""
    names = list(dict.fromkeys(lines))
    if "n" in options:
        index = int(options["n"])
        lines = [lines[index if index < len(lines) else 0]]  # OpenPBS also does this silently
    elif "c" in options:
        lines = [lines[index % len(lines)] for index in range(int(options["c"]))]
    return [(name, names.index(name), number) for number, name in enumerate(lines, start=2)]


def start(node, nodenum, tasknum, program):
    import json
    import subprocess

    from handson.pbs import delivery, processes

    directory = Path(os.environ["PBS_NODEFILE"]).parent
    environment = json.loads((directory / "environment.json").read_text())
    environment |= {"PBS_NODENUM": str(nodenum), "PBS_TASKNUM": str(tasknum)}
    streams = {
        stream: open(path, "ab")
        for path, _, stream in delivery.spool_files(json.loads((directory / "job.json").read_text()), directory)
    }
    try:
        return subprocess.Popen(
            processes.module_command("handson.cluster.nodes", node, *program),
            stdin=subprocess.DEVNULL,
            stdout=streams.get("o") or streams["e"],
            stderr=streams.get("e") or streams["o"],
            cwd=environment["HOME"],
            env=environment,
        )
    finally:
        for file in streams.values():
            file.close()


def wait_for(tasks, options):
    """Wait for (number, process) of tasks, and print their exit statuses unless they are 0. (For a task killed by a
    signal: 256 + its number.) With -v, print how many tasks have not been reported yet, first as started, then
    ("obits") as ended."""
    obits = 0 if "o" in options else len(tasks)
    waits = [(begun, min(obits, len(tasks) - begun)) for begun in range(len(tasks), 0, -1)] + [
        (0, left) for left in range(obits, 0, -1)
    ]
    for begun, left in waits:
        if "v" in options:
            print(f"pbsdsh: waiting on {begun} spawned and {left} obits", flush=True)
        if begun == 0:
            task, process = tasks[-left]
            code = process.wait()
            code = 256 - code if code < 0 else code
            if code or "v" in options:
                print(f"pbsdsh: task 0x{task:08X} exit status {code}", flush=True)


def forward_signals(running):
    def forward(number, _):
        for process in running:
            if process.poll() is None:
                process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
