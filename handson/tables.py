"""Tables of the TOML files that people write."""

import difflib


def known(table, keys):
    """Raises ValueError if the table has another key than these: what is mistyped would have no effect."""
    for key in table:
        if key not in keys:
            alike = difflib.get_close_matches(key, keys, 1)
            raise ValueError(f"there is no key {key!r}: {f'did you mean {alike[0]!r}?' if alike else 'the keys are ' + ', '.join(keys)}")
