"""The probe of cluster.py."""

import json

from grader.probes.gap_code import GapCode
from grader.sandbox.rank import StudentMistake


def tf_config(rank, ranks, source, case):
    """What the gap returns for each rank of a job."""
    student = GapCode(source)
    return {
        "found": [
            _read(student.run(lines=list(case["lines"]), rank=number, port=case["port"]).returned)
            for number in range(len(case["lines"]))
        ]
    }


def _read(config):
    """{"roles": names, "addresses": the workers', "task": [type, index]}. Raises StudentMistake for what is no such
    dictionary."""
    if isinstance(config, str):
        raise StudentMistake("your code returns a text: return the dictionary; the script makes JSON of it")
    try:
        config = json.loads(json.dumps(config))
        addresses, task = config["cluster"].get("worker", []), config["task"]
        if not isinstance(addresses, list) or not all(isinstance(one, str) for one in addresses):
            raise StudentMistake(f'"worker" is {addresses!r:.60}: it should be a list of texts, "host:port"')
        return {"roles": sorted(config["cluster"]), "addresses": addresses, "task": [task["type"], task["index"]]}
    except KeyError as error:
        raise StudentMistake(f"in what your code returns there is no {error}") from None
    except (TypeError, AttributeError, ValueError):
        raise StudentMistake(
            f'your code returns {config!r:.100}: it should be {{"cluster": {{...}}, "task": {{...}}}}'
        ) from None
