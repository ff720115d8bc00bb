"""Counts and names in messages."""


def counted(number, noun):
    """Return "1 node" or "2 nodes". number: a number, or a text for it."""
    return f"{number} {noun}{'s' * (str(number) != '1')}"


def there(number, noun):
    """Return "there is 1 node" or "there are 2 nodes"."""
    return f"there {'is' if str(number) == '1' else 'are'} {counted(number, noun)}"


def a_kind(value):
    """Return the type of a value with its article: "a list", "an ndarray", "None"."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' or name == 'ndarray' else 'a'} {name}"


def aligned(headings, rows):
    """Return the lines of a table of texts, with columns as wide as their texts."""
    widths = [max(map(len, column)) for column in zip(headings, *rows)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (headings, *rows)]
