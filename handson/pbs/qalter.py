"""qalter: change the requests of waiting jobs."""

import time

from handson.pbs import command

LETTERS = "aAcehjklmMNopPrRSuW"
USAGE = """\
usage: qalter [-a date_time] [-A account_string] [-c interval] [-e path]
	[-h hold_list] [-j y|n] [-k keep] [-l resource_list]
	[-m mail_options] [-M user_list] [-N jobname] [-o path] [-p priority]
	[-R o|e|oe] [-r y|n] [-S path] [-u user_list] [-W dependency_list]
	[-P project_name] job_identifier...
       qalter --version"""


def main():
    command.step_aside("qalter")
    command.run("qalter", alter_all, USAGE)


def alter_all(words):
    from handson.pbs import qhold
    from handson.pbs.command_options import Options

    found, names, behind = command.split(words, LETTERS, "")
    holds = [("h", value) for letter, value in found if letter == "h"]
    options = Options()
    options.add([(letter, value) for letter, value in found if letter != "h"])
    if holds:
        options.values["h"], _ = qhold.parse(["-h", holds[-1][1]], "qalter")
    return command.for_each_job("qalter", names + (behind or []), lambda name: alter(name, options))


def alter(name, options):
    """Change one waiting job (of an array: all waiting sub-jobs). Raises PBSError."""
    from handson.pbs import depend, store
    from handson.pbs.pbs_errors import PBSError

    with command.unfinished(name) as (db, job):
        if job["state"] not in "QHW":
            raise PBSError(f"Cannot modify attribute while job running  {name}.{job['server']}", 167)
        job.update(changes(job, options), comment=None)
        if "depend" in options.attributes:
            depend.register(db, job)
        held, depends = job["hold"] != "n", bool(job["depend"])
        job["state"] = "H" if held or depends else "W" if job["not_before"] > time.time() else "Q"
        if job["array"]:
            for subjob in store.select(db, "seq = ? AND state = 'Q' AND idx IS NOT NULL", job["seq"]):
                kept = {key: subjob[key] for key in ("hold", "depend", "not_before")}
                store.put(db, subjob | changes(subjob, options) | kept)


def changes(job, options):
    """Return the values of a job that `options` change. Raises PBSError."""
    from handson.cluster import site
    from handson.pbs import qsub, resources, store
    from handson.pbs.command_options import FIELDS

    given, attributes = options.values, options.attributes
    new = {key: value_of(given[letter]) for letter, (key, _, value_of) in FIELDS.items() if letter in given}
    if "N" in given:
        new["name"] = given["N"]
    if "h" in given:
        new["hold"] = "n" if given["h"] == "n" else "u"
    if "S" in given:
        new["shell"] = qsub.choose_shell(given["S"], {job["server"], "localhost"})
    for letter, key in (("o", "output"), ("e", "error")):
        if letter in given:
            new[key] = qsub.output_file(letter, given, job["workdir"], {job["server"], "localhost"})
    with store.reading() as db:
        here = site.load(store.meta(db, "site"))
    if options.resources:
        new["resources"] = job["resources"] | options.resources
        new["asked"] = resources.parse(new["resources"], here.walltime, here.strict)
    if "group_list" in attributes:
        qsub.check_groups(attributes["group_list"], here)
        new["groups"] = attributes["group_list"]
    return new | {key: attributes[key] for key in ("depend", "umask") if key in attributes}
