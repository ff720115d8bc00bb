"""Where a job can have a slower network than the machine has: in the embedded PBS alone. Notebooks ask, and jobs say
where the wish for one has no effect.

Batch commands import it: it needs the standard library only.
"""

import sys

from handson.cluster import virtual_nodes
from handson.pbs import command, resources

RATE, NO_RATE = "HANDSON_NETWORK", ("", "none")  # the variable of a job; its values that ask for no limit


def why_not():
    """Why jobs here can't have a slower network: a sentence; None if they can."""
    system, _ = command.batch_system()
    if system != "embedded":
        name = {"pbs": "PBS", "slurm": "Slurm"}[system]
        return f"{name} runs the jobs here on real nodes, and the network between those is as fast as it is"
    return virtual_nodes.why_not()


def between_real_nodes():
    """Whether jobs here have a real network."""
    return command.batch_system()[0] != "embedded"


def asked_for(words):
    """Whether qsub's arguments ask for a resource that only the embedded PBS has."""
    lists = [word[2:] or following for word, following in zip(words, [*words[1:], ""]) if word.startswith("-l")]
    return any(
        item.strip().startswith(f"{name}=") for text in lists for item in text.split(",") for name in resources.EMBEDDED
    )


def warn(environment, nodes):
    """Say in a job of several nodes (name -> properties, of an embedded PBS; empty otherwise) that the rate which
    its variable asks for has no effect."""
    rate = environment.get(RATE, "")
    if rate not in NO_RATE and len(nodes) != 1 and not any("pid" in node for node in nodes.values()):
        print(
            f"{RATE}={rate} has no effect: this job has no virtual nodes, whose network it could limit, so the network"
            " is as fast as it is",
            file=sys.stderr,
            flush=True,
        )
