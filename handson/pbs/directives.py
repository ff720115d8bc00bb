"""``#PBS`` lines: options inside a job script (PBS Pro User's Guide, 2.2: "Including directives in job scripts")."""

import shlex

from handson.pbs.pbs_errors import PBSError

REQUESTS = ("-q", "-l", "-W")  # options by which a job asks for its queue, resources and group


def read(script, prefix="#PBS"):
    """The options in `script` (bytes), as a list of words for each directive. Raises PBSError."""
    found = []
    for text in texts(script, prefix):
        try:
            words = shlex.split(text)
        except ValueError:
            raise error_in(text) from None
        if words:
            found.append(words)
    return found


def texts(script, prefix="#PBS"):
    """Return the text after the prefix of each directive in `script` (bytes)."""
    return list(numbered(script, prefix).values())


def numbered(script, prefix="#PBS"):
    """Return {line number, from 0: text after the prefix} of the directives in `script` (bytes).

    Directives count up to the first line that can be executed: the first that is neither blank nor a comment. PBS is
    written in C, and so lines end at \\n alone, and only ASCII's blanks are blanks, as for the methods of bytes.
    """
    found, prefix = {}, prefix.encode(errors="surrogateescape")
    for number, line in enumerate(script.split(b"\n") if prefix else ()):
        text = line.strip()
        if line.startswith(prefix) and (text == prefix or line[len(prefix) :][:1].isspace()):
            found[number] = text[len(prefix) :].strip().decode(errors="surrogateescape")
        elif text and not text.startswith(b"#") and not (number == 0 and text.startswith(b":")):
            break
    return found


def error_in(text, reason=""):
    """The PBSError of a directive with this `text`; reason: what an option in it is refused for."""
    return PBSError(f"{reason}\ndirective error: {text} ".lstrip("\n"), 1)


def requests(script):
    """The REQUESTS in `script` (bytes): [option, argument] of each. Raises PBSError."""
    return [[option, " ".join(argument)] for option, *argument in read(script) if option in REQUESTS]
