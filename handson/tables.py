"""Read tables of hand-written TOML files, and report what is wrong in them. It needs only the standard library."""

import difflib
import re
from typing import get_args, get_type_hints


def known(table, keys):
    """Raise ValueError if the table has other keys than these, because a mistyped key would have no effect."""
    for key in table:
        if key not in keys:
            alike = difflib.get_close_matches(key, keys, 1)
            raise ValueError(
                f"there is no key {key!r}:"
                f" {f'did you mean {alike[0]!r}?' if alike else 'the keys are ' + ', '.join(keys)}"
            )


def table(values, name, keys=None):
    """Return the table at a key, {} if it is missing. Raises ValueError if it is not a table, or if it has keys besides
    `keys`. If `keys` is None, all keys are allowed."""
    found = values.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"{name} = {found!r}, but it must be a table: a line [{name}], and its keys below")
    if keys is not None:
        known(found, keys)
    return found


def text(values, key, default, pattern, wanted):
    """Return the text at a key, `default` if it is missing. Raises ValueError with the description `wanted` if it does
    not match the pattern."""
    value = values.get(key, default)
    if key in values and not (isinstance(value, str) and re.fullmatch(pattern, value)):
        raise ValueError(f"{key} = {value!r}, but it must be {wanted}")
    return value


def wanted(error, kind):
    """Return (a key, what it must be) for a msgspec.ValidationError on a dataclass `kind`, whose types have
    descriptions."""
    key = re.search(r"\$\.(\w+)", str(error))[1]
    found = get_type_hints(kind, include_extras=True)[key]
    while not hasattr(found, "__metadata__"):  # in `X | None`, X
        found = get_args(found)[0]
    return key, found.__metadata__[-1].description
