"""How messages count and name things."""


def counted(number, noun):
    """ "1 node", "2 nodes". number: a number, or the text that stands for it."""
    return f"{number} {noun}{'s' * (str(number) != '1')}"


def there(number, noun):
    """ "there is 1 node", "there are 2 nodes"."""
    return f"there {'is' if str(number) == '1' else 'are'} {counted(number, noun)}"


def a_kind(value):
    """The type of a value with its article: "a list", "an ndarray", "None"."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' or name == 'ndarray' else 'a'} {name}"


def aligned(headings, rows):
    """The lines of a table of texts, each column as wide as it has to be."""
    widths = [max(map(len, column)) for column in zip(headings, *rows)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (headings, *rows)]
