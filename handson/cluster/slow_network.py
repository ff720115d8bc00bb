"""Find whether jobs can have a limited network, which only the embedded PBS offers. Notebooks ask before they request
one, and jobs warn if a request has no effect.

Batch commands import it, so it needs only the standard library.
"""

import sys

from handson.cluster import virtual_nodes
from handson.pbs import command, resources

RATE, NO_RATE = "HANDSON_NETWORK", ("", "none")  # the variable of a job, and its values for no limit


def why_not():
    """Return a sentence on why jobs cannot have a limited network here, or None if they can."""
    system, _ = command.batch_system()
    if system != "embedded":
        name = {"pbs": "PBS", "slurm": "Slurm"}[system]
        return f"{name} runs the jobs here on real nodes, whose network cannot be limited"
    return virtual_nodes.why_not()


def between_real_nodes():
    """Return whether jobs here have a real network."""
    return command.batch_system()[0] != "embedded"


def asked_for(words):
    """Return whether qsub's arguments request a resource that only the embedded PBS has."""
    lists = [word[2:] or following for word, following in zip(words, [*words[1:], ""]) if word.startswith("-l")]
    return any(
        item.strip().startswith(f"{name}=") for text in lists for item in text.split(",") for name in resources.EMBEDDED
    )


def warn(environment, nodes):
    """Warn in a multi-node job if its variable requests a network rate without effect. nodes: name -> properties, of an
    embedded PBS; empty otherwise."""
    rate = environment.get(RATE, "")
    if rate not in NO_RATE and len(nodes) != 1 and not any("pid" in node for node in nodes.values()):
        print(
            f"{RATE}={rate} has no effect: only the network of virtual nodes can be limited, and this job has none",
            file=sys.stderr,
            flush=True,
        )
