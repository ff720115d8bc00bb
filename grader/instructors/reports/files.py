"""Writing what is told, and making text of students harmless on the way."""

import re

from handson.errors import OneSentence
from handson.files import written_aside

COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\ufff0-\uffff]")


class TellError(OneSentence, OSError):
    """Why something can't be written."""


def write(path, text):
    """Make `text` the content of `path`, as `written_aside` does; the gradebook has it all, so nothing waits for the disk. Raises TellError.

    What is there already isn't touched.
    """
    data = text.encode()
    try:
        if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
            return
        with written_aside(path, durable=False) as file:
            file.write(data)
    except OSError as error:
        raise TellError(f"{path} can't be written ({error.strerror}): make room or mend its folder, then run `python -m grader report`") from None


def clean(text):
    """Text of any origin, without what a terminal, a browser or a spreadsheet would act on: colours, control and direction characters."""
    return HIDDEN.sub("\ufffd", COLOURS.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


def number(value):
    """Points as people write them: 2, 2.5, 0.33."""
    return f"{round(value, 2):.2f}".rstrip("0").rstrip(".")
