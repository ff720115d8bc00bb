"""Writing what is told, and making text of students harmless on the way."""

import os
import re
import secrets

from handson.errors import OneSentence

COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\ufff0-\uffff]")


class TellError(OneSentence, OSError):
    """Why something can't be written."""


def write(path, text):
    """Make `text` the content of `path`, by another file that is renamed; the folder is made if needed. Raises TellError.

    What is there already isn't touched. It doesn't wait for the disk: the gradebook has it all.
    """
    data = text.encode()
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            aside.write_bytes(data)
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise TellError(f"{path} can't be written ({error.strerror}): make room or mend its folder, then run `python -m grader report`") from None


def clean(text):
    """Text of any origin, without what a terminal, a browser or a spreadsheet would act on: colours, control and direction characters."""
    return HIDDEN.sub("\ufffd", COLOURS.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


def number(value):
    """Points as people write them: 2, 2.5, 0.33."""
    return f"{round(value, 2):.2f}".rstrip("0").rstrip(".")
