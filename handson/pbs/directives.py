"""``#PBS`` lines: options inside a job script (PBS Pro User's Guide, 2.2: "Including directives in job scripts")."""

import shlex

from handson.pbs.pbs_errors import PBSError

REQUESTS = ("-q", "-l", "-W")  # options with which a job requests its queue, resources and group


def read(script, prefix="#PBS"):
    """Return the options in `script` (bytes), as a list of words for each directive. Raises PBSError."""
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
    """Return {line number, from 0: text after the prefix} of the directives in `script` (bytes), which `joined` has
    returned.

    Directives end at the first executable line, which is neither blank nor a comment. Blanks may precede the prefix.
    Like PBS, which is written in C, this splits lines only at \\n, and only ASCII's blanks are blanks, as for the
    methods of bytes.
    """
    found = {}
    for number, line in enumerate(joined(script, prefix).split(b"\n") if prefix else ()):
        if (behind := _behind(line, prefix)) is not None:
            found[number] = behind.decode(errors="surrogateescape")
        elif _is_executed(line, number):
            break
    return found


def joined(script, prefix="#PBS"):
    """Return the `script` (bytes) that runs: a directive that ends with a backslash continues in the next line, and
    qsub joins the two lines (OpenPBS, `get_script` in src/cmds/qsub_sup.c)."""
    lines, reading, goes_on = [], bool(prefix), False
    for line in script.split(b"\n"):
        if goes_on:
            lines[-1] = lines[-1][:-1] + line
        else:
            lines.append(line)
        is_directive = reading and _behind(lines[-1], prefix) is not None
        reading = is_directive or reading and not _is_executed(line, len(lines) - 1)
        goes_on = is_directive and line.endswith(b"\\")
    return b"\n".join(lines)


def _behind(line, prefix):
    """Return the text after the prefix in a line, or None if the line is not a directive."""
    text, prefix = line.strip(), prefix.encode(errors="surrogateescape")
    is_one = text.startswith(prefix) and (text == prefix or text[len(prefix) :][:1].isspace())
    return text[len(prefix) :].strip() if is_one else None


def _is_executed(line, number):
    text = line.strip()
    return bool(text) and not text.startswith(b"#") and not (number == 0 and text.startswith(b":"))


def error_in(text, reason=""):
    """Return the PBSError of a directive with this `text`; reason: why an option in it is refused."""
    return PBSError(f"{reason}\ndirective error: {text} ".lstrip("\n"), 1)


def requests(script):
    """Return [option, argument] of each of the REQUESTS in `script` (bytes). Raises PBSError."""
    return [[option, " ".join(argument)] for option, *argument in read(script) if option in REQUESTS]
