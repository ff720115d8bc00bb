"""Tables of the TOML files that people write, and what is wrong in one. It needs nothing but Python itself."""

import difflib
import re
from typing import get_args, get_type_hints


def known(table, keys):
    """Raises ValueError if the table has another key than these: what is mistyped would have no effect."""
    for key in table:
        if key not in keys:
            alike = difflib.get_close_matches(key, keys, 1)
            raise ValueError(
                f"there is no key {key!r}:"
                f" {f'did you mean {alike[0]!r}?' if alike else 'the keys are ' + ', '.join(keys)}"
            )


def table(values, name, keys=None):
    """The table at a key, {} without one. Raises ValueError if there is something else, or if it has a key besides
    `keys` (None: any)."""
    found = values.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"{name} = {found!r}, but it must be a table: a line [{name}], and its keys below")
    if keys is not None:
        known(found, keys)
    return found


def text(values, key, default, pattern, wanted):
    """The text at a key, `default` without one. Raises ValueError, which says what is `wanted`, if it is another thing
    than the pattern."""
    value = values.get(key, default)
    if key in values and not (isinstance(value, str) and re.fullmatch(pattern, value)):
        raise ValueError(f"{key} = {value!r}, but it must be {wanted}")
    return value


def wanted(error, kind):
    """(a key, what it must be): what a msgspec.ValidationError says of a dataclass `kind`, whose types have a
    description."""
    key = re.search(r"\$\.(\w+)", str(error))[1]
    found = get_type_hints(kind, include_extras=True)[key]
    while not hasattr(found, "__metadata__"):  # in `X | None`, X
        found = get_args(found)[0]
    return key, found.__metadata__[-1].description
