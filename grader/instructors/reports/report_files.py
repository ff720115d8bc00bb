"""Writes the files of reports, and makes students' text in them harmless."""

import re
import time

from handson.errors import OneSentence
from handson.files import written_aside

COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\ufff0-\uffff]"
)


# 1990 and 2100: a time outside of these is not when somebody worked
ARCHIVES_BEGIN, ARCHIVES_END = 631_152_000, 4_102_444_800


class ReportError(OneSentence, OSError):
    """A sentence on why a report can't be written."""


def write(path, text):
    """Make `text` the content of `path`, as `written_aside` does. A file that has this content already is not touched.
    Raises ReportError.

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
    """Text of any origin without the colours, control characters and direction marks that terminals, browsers or
    spreadsheets act on."""
    if text.isascii() and text.isprintable():  # most texts, and a class has a million
        return text
    return HIDDEN.sub("\ufffd", COLOURS.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


def moment(seconds, form="%Y-%m-%d %H:%M", zone=time.localtime):
    """A time of a file, in seconds since 1970, as text; "" for a time that no student worked at, which archives and
    disks can hold."""
    return time.strftime(form, zone(seconds)) if ARCHIVES_BEGIN < seconds < ARCHIVES_END else ""


def number(value, digits=2):
    """Points as people write them: 2, 2.5, 0.33."""
    return f"{round(value, digits):.{digits}f}".rstrip("0").rstrip(".")
