"""Commands of a real PBS that the embedded one does not have. Each prints the purpose of the real command, and the
alternative here."""

import sys

from handson.pbs import command

INSTEAD = {
    "qmove": "moves a waiting job to another queue; delete yours (qdel) and submit it again with `qsub -q QUEUE`",
    "qrerun": (
        "ends a running job and puts it back into the queue, which only operators may do; use qdel, and submit the job"
        " again"
    ),
    "qmgr": (
        "shows and changes the settings of server, queues and nodes; `qstat -Bf`, `qstat -Qf` and `pbsnodes -a` show"
        " them here, and the site's file in jobs/sites/ holds them"
    ),
}


def qmove():
    refuse("qmove")


def qrerun():
    refuse("qrerun")


def qmgr():
    refuse("qmgr")


def refuse(name):
    command.step_aside(name)
    sys.exit(f"{name}: the embedded PBS of the course has no {name}. A real one {INSTEAD[name]}.")
