"""The probe of cluster.py."""

import json

from grader.probes.gap_code import GapCode
from grader.sandbox.rank import StudentMistake


def tf_config(rank, ranks, source, case):
    """Return the gap's results for each rank of a job."""
    student = GapCode(source)
    return {
        "found": [
            _read(student.run(lines=list(case["lines"]), rank=number, port=case["port"]).returned)
            for number in range(len(case["lines"]))
        ]
    }


def _read(config):
    """Return {"roles": names, "addresses": of the workers, "task": [type, index]}. Raises StudentMistake if the result
    is not such a dictionary."""
    if isinstance(config, str):
        raise StudentMistake("your code returns a string: return the dictionary, which the script converts to JSON")
    try:
        config = json.loads(json.dumps(config))
        addresses, task = config["cluster"].get("worker", []), config["task"]
        if not isinstance(addresses, list) or not all(isinstance(one, str) for one in addresses):
            raise StudentMistake(f'"worker" is {addresses!r:.60}, but it must be a list of strings "host:port"')
        return {"roles": sorted(config["cluster"]), "addresses": addresses, "task": [task["type"], task["index"]]}
    except KeyError as error:
        raise StudentMistake(f"the dictionary that your code returns has no {error}") from None
    except (TypeError, AttributeError, ValueError):
        raise StudentMistake(
            f'your code returns {config!r:.100}, but it must return {{"cluster": {{...}}, "task": {{...}}}}'
        ) from None
