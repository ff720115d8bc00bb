"""qsub's options: the meaning of each letter, on the command line and in directives. The command line takes
precedence."""

import os
import re
import time
from string import whitespace

from handson.pbs import command, depend
from handson.pbs.pbs_errors import PBSError, illegal_option_value, illegal_value, undefined_attribute

WITH_VALUE = "aAcCeJjklmMNopPqrRSuvW"
WITHOUT_VALUE = "fhGIVXz"
NO_MEANING_HERE = "cmMpP"
W_ATTRIBUTES = ("group_list", "depend", "block", "umask", "run_count")
W_NUMBERS = ("umask", "run_count")
W_NO_MEANING_HERE = (
    "accounting_id",
    "create_resv_from_job",
    "cred",
    "max_run_subjobs",
    "project",
    "pwd",
    "release_nodes_on_stageout",
    "sandbox",
    "stagein",
    "stageout",
    "tolerate_node_failures",
)
FIELDS = {  # letter -> (a job's key for the option's value, a function from the text to the value)
    "A": ("account", "", str),
    "a": ("not_before", 0, float),
    "j": ("join", "n", str),
    "k": ("keep", "n", lambda text: text.replace("n", "")),
    "M": ("mail_users", "", str),
    "m": ("mail", "a", str),
    "P": ("project", "_pbs_project_default", str),
    "p": ("priority", 0, int),
    "R": ("remove", "", str),
    "r": ("rerunnable", "y", lambda text: text == "y"),
}
JOB_NAME = re.compile(r"[A-Za-z0-9_+\-][A-Za-z0-9_+\-.]*")
USAGE = """\
usage: qsub [-a date_time] [-A account_string] [-c interval]
	[-C directive_prefix] [-e path] [-f ] [-h ] [-I [-X]] [-j oe|eo] [-J X-Y[:Z]]
	[-k keep] [-l resource_list] [-m mail_options] [-M user_list]
	[-N jobname] [-o path] [-p priority] [-P project] [-q queue] [-r y|n]
	[-R o|e|oe] [-S path] [-u user_list] [-W otherattributes=value...]
	[-v variable_list] [-V ] [-z] [script | -- command [arg1 ...]]
       qsub --version"""


def split(words):
    """Split a command line like `command.split`, with qsub's options."""
    return command.split(words, WITH_VALUE, WITHOUT_VALUE)


class Options:
    """The user's request: `values` by letter, `resources` by name (-l), `attributes` by name (-W). The first value of a
    name counts."""

    def __init__(self):
        self.values, self.resources, self.attributes = {}, {}, {}

    def add(self, found):
        """Add the options of one source: the command line first, then the script. Within a source, the last one
        counts."""
        values, resources, attributes = {}, {}, {}
        for letter, text in found:
            if letter == "l":
                resources |= _resources(text)
            elif letter == "W":
                attributes |= _attributes(text)
            elif letter not in self.values:
                values[letter] = CHECKS.get(letter, _anything)(text, letter)
        self.values = values | self.values
        self.resources = resources | self.resources
        self.attributes = attributes | self.attributes

    def noted(self):
        """Return the given options that have no meaning on one machine."""
        letters = [f"-{letter}" for letter in NO_MEANING_HERE if letter in self.values]
        return letters + [f"-W {name}" for name in W_NO_MEANING_HERE if name in self.attributes]


def _resources(text):
    found = {}
    for item in _split_commas(text):
        name, _, value = item.partition("=")
        if not name.strip(whitespace):
            raise illegal_option_value("l")
        found[name.strip(whitespace)] = value.strip(whitespace).strip("\"'")
    return found


def _split_commas(text):
    """Return the parts of `text` between commas that are not quoted."""
    return [part for part in re.findall(r"""(?:[^,"']|"[^"]*"|'[^']*'|["'])+""", text)]


def _attributes(text):
    """Return ``group_list=gt00,depend=afterok:5,afterany:6`` by name; a part without ``name=`` belongs to the previous
    attribute."""
    found, name = {}, None
    for part in _split_commas(text):
        match = re.match(r"\s*([A-Za-z_]+)=", part, re.ASCII)
        if match:
            name, found[match[1]] = match[1], part[match.end() :].strip(whitespace).strip("\"'")
        elif name:
            found[name] += "," + part.strip("\"'")
        else:
            raise illegal_option_value("W")
    return {name: _attribute(name, value) for name, value in found.items()}


def _attribute(name, value):
    if not value or name in ("stagein", "stageout") and not re.fullmatch(r"\S+@\S+:\S+", value):
        raise illegal_option_value("W")
    if name in W_NO_MEANING_HERE:
        return value
    if name not in W_ATTRIBUTES:
        raise undefined_attribute(name)
    if name in W_NUMBERS and not re.fullmatch("[0-9]+", value):
        raise illegal_value(name)
    if name == "block":
        if value.lower() not in ("true", "false", "t", "f", "y", "n", "1", "0"):
            raise illegal_value("block")
        return value.lower() in ("true", "t", "y", "1")
    if name == "depend":
        try:
            return depend.parse(value)
        except ValueError:
            raise illegal_option_value("W") from None
    return value


def _anything(text, letter):
    return text


def _nonempty(text, letter):
    if not text.strip():
        raise illegal_option_value(letter)
    return text


def _matching(pattern):
    def check(text, letter):
        if not re.fullmatch(pattern, text):
            raise illegal_option_value(letter)
        return text

    return check


def _name(text, letter):
    if len(text) > 230:
        raise PBSError("Job name is too long ", 2)
    if not JOB_NAME.fullmatch(text):
        raise illegal_option_value(letter)
    return text


def _date(text, letter):
    try:
        return parse_date(text)
    except ValueError:
        raise illegal_option_value(letter) from None


def _array(text, letter):
    try:
        return parse_array(text)
    except ValueError:
        raise illegal_option_value(letter) from None


def _refused(text, letter):
    what = "an interactive job" if letter == "I" else "X11 forwarding"
    raise PBSError(f"-{letter}: {what} is not possible here; submit a script, or run the command in a terminal", 1)


CHECKS = {
    "a": _date,
    "c": _matching("[nscwu]|[cw]=[0-9]+"),
    "e": _nonempty,
    "I": _refused,
    "j": _matching("oe|eo|n"),
    "J": _array,
    "k": _matching("n|[oed]+"),
    "m": _matching("n|[abej]+"),
    "N": _name,
    "o": _nonempty,
    "p": _matching("[+-]?([0-9]{1,3}|10[01][0-9]|102[0-4])"),
    "r": _matching("[yn]"),
    "R": _matching("[oe]{1,2}"),
    "S": _matching(r"(/[^,]*)(,/[^,]*)*"),
    "X": _refused,
}


def parse_date(text, now=None):
    """Return the seconds since the epoch of ``[[[[CC]YY]MM]DD]hhmm[.SS]``; if parts are missing, those of the next
    matching time. Raises ValueError."""
    digits, dot, second = text.partition(".")
    if not re.fullmatch("([0-9]{2}){2,6}", digits) or dot and not re.fullmatch("[0-9]{2}", second):
        raise ValueError(f"{text!r} is not a date and time")
    month, day, hour, minute = (int(digits[at:][:2]) if len(digits) >= -at else None for at in (-8, -6, -4, -2))
    year = int(digits[:-8]) if len(digits) > 8 else None
    if len(digits) == 10:
        year += 1900 if year > 68 else 2000
    now = time.time() if now is None else now
    here = time.localtime(now)
    wanted = [year or here.tm_year, month or here.tm_mon, day or here.tm_mday, hour, minute, int(second or 0)]
    if not (1 <= wanted[1] <= 12 and 1 <= wanted[2] <= 31 and wanted[3] < 24 and wanted[4] < 60 and wanted[5] < 62):
        raise ValueError(f"{text!r} is not a date and time")
    moment = time.mktime((*wanted, 0, 0, -1))
    if moment <= now and not year:
        wanted[0 if month else 1 if day else 2] += 1
        moment = time.mktime((*wanted, 0, 0, -1))
    return moment


def parse_array(text):
    """Return {"first", "last", "step", "limit"} of ``X-Y[:Z][%M]``. Raises ValueError."""
    match = re.fullmatch("([0-9]{1,9})-([0-9]{1,9})(?::([0-9]{1,9}))?(?:%([0-9]{1,9}))?", text)
    if not match:
        raise ValueError(f"{text!r} is not a range")
    first, last, step, limit = (int(number) if number else None for number in match.groups())
    step = 1 if step is None else step
    if step < 1 or last < first + step or limit == 0:
        raise ValueError(f"{text!r} is not a range of at least two")
    return {"first": first, "last": last, "step": step, "limit": limit}


def variable_list(text, environment):
    """Return the variables of ``-v A=1,B="x,y",NAME``; a name without a value takes it from `environment`. A backslash
    escapes a comma, and stays before any other character (copy_env_value in OpenPBS's qsub.c). Raises PBSError."""
    found, part, quote, escaped = {}, "", "", False
    parts = []
    for character in text:
        if escaped:
            part, escaped = part + ("" if character == "," else "\\") + character, False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            part, quote = (part, "") if character == quote else (part + character, quote)
        elif character in "\"'":
            quote = character
        elif character == ",":
            parts.append(part)
            part = ""
        else:
            part += character
    for part in [*parts, part]:
        name, equals, value = part.strip("\n").partition("=")
        name = name.strip()
        if not name and not equals:
            continue
        if not re.fullmatch(r"[^\s=]+", name) or quote or not equals and name not in environment:
            raise PBSError("cannot send environment with the job", 1, hint=_about_the_comma(part, found))
        found[name] = value if equals else environment[name]
    return found


def _about_the_comma(part, before):
    """Return the remedy for a `part` of -v that is not a variable, after the variables `before`."""
    if not before:
        return f"{part.strip() or '-v'!r} is not a variable of this shell; give it a value: -v NAME=value"
    name, value = list(before.items())[-1]
    return f"""a comma separates variables; if it belongs to a value, quote that: -v "{name}='{value},{part}'\""""


def everything(environment):
    """Return the variables that -V sends: all of `environment`, except those of the job in which qsub itself may
    run."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(("PBS_", "HANDSON_NODE", "HANDSON_STEPPED"))
    }


def output_path(text, directory, local_hosts):
    """Return (absolute path, a host in it that is not this one) of ``[host:]path`` in -o and -e."""
    host, colon, path = text.partition(":")
    if not colon or "/" in host:
        host, path = "", text
    foreign = host if host and host.split(".")[0] not in local_hosts else ""
    absolute = os.path.join(directory, os.path.expanduser(path) if path.startswith("~/") else path)
    keep_slash = "/" if path.endswith("/") or not path else ""
    return os.path.normpath(absolute) + keep_slash, foreign
