"""The language of what people read: English, or another one that has a folder in locale/.

The code speaks English. A text is translated where it is shown: `translated` takes an English text, and in English
returns it as it is, without reading anything.
"""

import functools
import os
import sys

from handson.files import COURSE

ENGLISH = "en"
LOCALE = COURSE / "locale"
CHOSEN = "CHOSEN"  # this file in the students' locale/ contains the language's code
OF_THE_SYSTEM = ("LC_ALL", "LC_MESSAGES", "LANG")


def chosen():
    """Return the code of the user's language, such as "ja": the value of HANDSON_LANGUAGE, or the language in which the
    course was released, or the system's language. A language without a folder in locale/ is English."""
    code = os.environ.get("HANDSON_LANGUAGE") or _released() or _of_the_system()
    return code if code in available() else ENGLISH


@functools.cache
def available():
    """Return the codes of all languages but English."""
    try:
        return frozenset(place.name for place in os.scandir(LOCALE) if place.is_dir())
    except OSError:
        return frozenset()


@functools.cache
def _released():
    try:
        return (LOCALE / CHOSEN).read_text().strip()
    except OSError:
        return ""


def _of_the_system():
    return next(filter(None, map(os.environ.get, OF_THE_SYSTEM)), "").partition("_")[0]


def translated(text, code=None):
    """Return an English text in the user's language, or in that of a code; what has no translation stays English,
    sentence by sentence."""
    language = chosen() if code is None else code
    if language not in available():
        return text
    from handson.catalogue import messages

    return messages(LOCALE / language / "LC_MESSAGES").translate(str(text))


def marked(text):
    """Return a text as it is. The call marks a single word as one that is translated where it is shown."""
    return text


def speak(*values, **options):
    """Print texts in the user's language. It takes what print() takes."""
    # before the output of programs that come next; in a notebook, each flush would make an output of its own
    options = {"flush": "ipykernel" not in sys.modules} | options
    print(*(translated(value) if isinstance(value, str) else value for value in values), **options)
