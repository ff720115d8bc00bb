"""A site's own PBS, for tests: programs that the course's commands take for a real one and give way to.

Behind them is the embedded PBS, whose answers are those of a real one (tests/pbs/test_pbs_answers.py). Its jobs run
without what only the embedded one gives them: no process knows the job's virtual nodes, so all that reaches another
node goes by pbsdsh, which hands back neither output nor status.
"""

import os
import sysconfig
from pathlib import Path

from handson.cluster import launcher

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ("qsub", "qstat", "qdel", "pbsnodes", "pbsdsh")
HIDDEN = ("HANDSON_NODES", "HANDSON_NODE", "HYDRA_LAUNCHER", *launcher.AGENTS)
PROGRAM = """#!/usr/bin/env python3
import os, sys
words = sys.argv[1:]
if {name!r} == "qsub" and words != ["--version"]:
    words = ["-S", {shell!r}, *words]
if {name!r} == "pbsdsh":
    os.environ["HANDSON_NODES"] = os.path.join(os.path.dirname(os.environ["PBS_NODEFILE"]), "nodes.json")
    program = words.index("--") + 1
    words[program:program] = ["env", {without}]
os.execv({path!r}, [{path!r}, *words])
"""
SHELL = '#!/bin/sh\nunset {hidden}\nexec /bin/bash "$@"\n'


def install(folder):
    """Put the programs into `folder`, which is to be the first on PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    shell = folder / "shell"
    texts = {"shell": SHELL.format(hidden=" ".join(HIDDEN))}
    without = ", ".join(repr(word) for name in HIDDEN for word in ("-u", name))
    for name in COMMANDS:
        texts[name] = PROGRAM.format(
            name=name, shell=str(shell), without=without, path=os.path.join(sysconfig.get_path("scripts"), name)
        )
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder
