"""The error of a batch command: one sentence, and PBS's exit status."""

from handson.errors import OneSentence


class PBSError(OneSentence):
    """An error whose sentence goes to stderr, with the command's name before each of its lines; `status` is the exit
    status.

    usage: whether to print the command's usage below the sentence. hint: advice in a last line, which a real PBS does
    not print. first: a line to print before, without the command's name. Statuses above 100 are PBS's error numbers
    (15001, ...) modulo 256, as an exit status.
    """

    def __init__(self, sentence="", status=1, usage=False, hint="", first=""):
        super().__init__(sentence)
        self.status = status
        self.usage = usage
        self.hint = hint
        self.first = first


def unknown_job(job_id):
    return PBSError(f"Unknown Job Id {job_id}", 153)


def illegal_job_id(text):
    return PBSError(f"illegally formed job identifier: {text}", 1)


def job_has_finished(job_id):
    return PBSError(f"Job has finished {job_id}", 35)


def wrong_state(job_id):
    return PBSError(f"Request invalid for state of job {job_id}", 168)


def undefined_attribute(name):
    """Return the error for an unknown attribute, which a real PBS reports as an invalid group."""
    return PBSError("Bad GID for job execution", 154, hint=f"-W knows no attribute {name}")


def illegal_value(name="", hint=""):
    return PBSError(f"Illegal attribute or resource value {name}".rstrip(), 166, hint=hint)


def unknown_queue(detail=""):
    return PBSError(f"Unknown queue {detail}".rstrip(), 170)


def unknown_host(server, status):
    """Return the error for a server that cannot be found. (PBS names its default server, not the requested one.)"""
    return PBSError(f"cannot connect to server {server} (errno=15008)", status, first="Unknown Host.")


def bad_user():
    return PBSError("Bad UID for job execution", 175)


def walltime_limit(longest):
    return PBSError(
        "Job violates queue and/or server resource limits", 188, hint=f"this queue's longest walltime is {longest}"
    )


def unknown_resource(name, chunk=False, hint=""):
    return PBSError(f"Unknown resource: {name}" if chunk else f"Unknown resource Resource_List.{name}", 187, hint=hint)


def not_a_text(name, hint):
    return PBSError(f"resource is not of type string Resource_List.{name}", 252, hint=hint)


def bad_group():
    return PBSError("Bad GID for job execution", 197)


def illegal_option_value(letter):
    return PBSError(f"illegal -{letter} value", 2, usage=True)
