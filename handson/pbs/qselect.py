"""qselect: print the identifiers of the jobs that meet all conditions, for example for ``qdel $(qselect -N train)``."""

import operator
import re

from handson.pbs import command

USAGE = """\
usage: qselect [-a [op]date_time] [-A account_string] [-c [op]interval]
	[-h hold_list] [-H] [-J] [-l resource_list] [-N name] [-p [op]priority]
	[-q destination] [-r y|n] [-s states] [-t subopt[op]date_time] [-T] [-P project_name]
	[-x] [-u user_name]
       qselect --version"""
COMPARE = {
    "eq": operator.eq,
    "ne": operator.ne,
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
}
TIMES = {"a": "not_before", "c": "ctime", "e": "qtime", "m": "mtime", "q": "qtime", "s": "stime"}


def main():
    command.step_aside("qselect")
    command.run("qselect", select, USAGE)


def select(words):
    from handson.pbs import store
    from handson.pbs.pbs_errors import PBSError

    found, others, behind = command.split(words, "aAchlNpPqrstu", "HJTx")
    if others or behind:
        raise PBSError(status=2, usage=True)
    letters = {letter for letter, _ in found}
    conditions = [condition(letter, text) for letter, text in found]
    with store.reading() as db:
        jobs = store.select(db, "1" if letters & {"x", "H"} else store.UNFINISHED)
    for job in jobs:
        if (job["index"] is None or "T" in letters) and all(holds(job) for holds in conditions):
            print(f"{job['id']}.{job['server']}")


def condition(letter, text):
    """Return a function of a job that returns whether it meets the option. Raises PBSError."""
    compare, text = comparison(text)
    if letter == "q":
        queue = text.partition("@")[0]
        return lambda job: not queue or job["queue"] == queue
    if letter == "s":
        return lambda job: (job["state"] in text) == (compare is not operator.ne)
    if letter == "l":
        return resource_condition(text)
    if letter in "at":
        return time_condition(text if letter == "t" else "a" + text, compare, letter)
    if letter == "p":
        return lambda job: compare(job["priority"], int(text)) if re.fullmatch(r"[+-]?\d+", text) else False
    wanted = {
        "A": lambda job: job["account"] == text,
        "H": lambda job: job["state"] == "F",
        "h": lambda job: job["hold"] in text or text == "n" and job["hold"] == "n",
        "J": lambda job: bool(job["array"]),
        "N": lambda job: job["name"] == text,
        "P": lambda job: job["project"] == text,
        "r": lambda job: job["rerunnable"] == (text == "y"),
        "u": lambda job: job["user"] in [name.partition("@")[0] for name in text.split(",")],
    }
    return wanted.get(letter, lambda job: True)


def comparison(text):
    """Return (comparison, rest) of ``.gt.5``; equality is the default."""
    match = re.match(r"\.(eq|ne|ge|gt|le|lt)\.", text)
    return (COMPARE[match[1]], text[match.end() :]) if match else (operator.eq, text)


def resource_condition(text):
    """Return the condition of ``ncpus.gt.1,walltime.le.600``."""
    from handson.pbs.pbs_errors import illegal_option_value

    parts = [re.fullmatch(r"(\w+)\.(eq|ne|ge|gt|le|lt)\.([^,]+)", part) for part in text.split(",")]
    if not all(parts):
        raise illegal_option_value("l")
    return lambda job: all(
        _compares(job["asked"]["listing"].get(part[1]), COMPARE[part[2]], part[3], part[1]) for part in parts
    )


def _compares(value, compare, text, name):
    from handson.pbs.resources import CHUNK, JOB, parse_size, parse_time

    reader = {"int": int, "size": parse_size, "time": parse_time}.get(CHUNK.get(name) or JOB.get(name), str)
    try:
        return value is not None and compare(reader(value), reader(text))
    except ValueError:
        return False


def time_condition(text, compare, letter):
    """Return the condition of ``s.gt.1430``: started after half past two."""
    from handson.pbs.command_options import parse_date
    from handson.pbs.pbs_errors import illegal_option_value

    if letter == "t":
        compare, date = comparison(text[1:])
    else:
        date = text[1:]
    try:
        key, moment = TIMES[text[:1]], parse_date(date)
    except (KeyError, ValueError):
        raise illegal_option_value(letter) from None
    return lambda job: bool(job.get(key)) and compare(int(job[key]), int(moment))
