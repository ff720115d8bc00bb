"""Write the files of reports, and remove harmful characters from students' text in them."""

import re
import time

from handson.errors import OneSentence
from handson.files import written_aside

COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\ufff0-\uffff]"
)


# 1990 and 2100: nobody worked at times outside this range
ARCHIVES_BEGIN, ARCHIVES_END = 631_152_000, 4_102_444_800


class ReportError(OneSentence, OSError):
    """The reason why a report cannot be written."""


def write(path, text):
    """Make `text` the content of `path`, as `written_aside` does. An unchanged file is not touched. Raises ReportError.

    It does not wait for the disk, because reports can be written again from the gradebook.
    """
    data = text.encode()
    try:
        if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
            return
        with written_aside(path, durable=False) as file:
            file.write(data)
    except OSError as error:
        raise ReportError(
            f"{path} can't be written ({error.strerror}): make room or repair its folder, then run the same command"
            " again"
        ) from None


def clean(text):
    """Return text of any origin without the colours, control characters and direction marks that terminals, browsers or
    spreadsheets interpret."""
    if text.isascii() and text.isprintable():  # a fast path for most texts, because a class has a million
        return text
    return HIDDEN.sub("\ufffd", COLOURS.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


def moment(seconds, form="%Y-%m-%d %H:%M", zone=time.localtime):
    """Return a file's time, in seconds since 1970, as text, or "" for an impossible time, which archives and disks can
    contain."""
    return time.strftime(form, zone(seconds)) if ARCHIVES_BEGIN < seconds < ARCHIVES_END else ""


def number(value, digits=2):
    """Return points as people write them: 2, 2.5, 0.33."""
    return f"{round(value, digits):.{digits}f}".rstrip("0").rstrip(".")
