"""What a batch command says when it cannot do what it was asked: one sentence and PBS's exit status."""

from handson.errors import OneSentence


class PBSError(OneSentence):
    """The sentence goes to stderr behind the command's name; `status` is the exit status.

    The statuses above 100 are PBS's error numbers (15001, ...) as an exit status can carry them: modulo 256.
    """

    def __init__(self, sentence, status=1, usage=False):
        super().__init__(sentence)
        self.status = status
        self.usage = usage  # print the command's usage below the sentence


def unknown_job(job_id):
    return PBSError(f"Unknown Job Id {job_id}", 153)


def undefined_attribute(name):
    return PBSError(f"Undefined attribute  {name}", 154)


def illegal_value(name=""):
    return PBSError(f"Illegal attribute or resource value {name}".rstrip(), 166)


def unknown_queue(detail=""):
    return PBSError(f"Unknown queue {detail}".rstrip(), 170)


def unknown_resource(name, chunk=False):
    return PBSError(f"Unknown resource: {name}" if chunk else f"Unknown resource Resource_List.{name}", 187)


def bad_group():
    return PBSError("Bad GID for job execution", 197)


def illegal_option_value(letter):
    return PBSError(f"illegal -{letter} value", 2, usage=True)
