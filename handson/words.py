"""How messages count and name things, and how many columns of a terminal they take."""

import re

from handson.language import translated

# a line does not begin with these
NOT_FIRST = "、。，．・：；？！）」』】〉》ーゝ々ぁぃぅぇぉっゃゅょァィゥェォッャュョ％"
NOT_LAST = "（「『【〈《"
# these stay on one line: code, a word, or one letter of a wide script, with the brackets around it
PIECES = rf"( *)((?:[{NOT_LAST}]*(?:`[^`]+`|[!-~]+|[^ ])[{NOT_FIRST}]*))"


def counted(number, noun):
    """Return "1 node" or "2 nodes". number: a number, or a text for it."""
    return f"{number} {noun}{'s' * (str(number) != '1')}"


def there(number, noun):
    """Return "there is 1 node" or "there are 2 nodes"."""
    return f"there {'is' if str(number) == '1' else 'are'} {counted(number, noun)}"


def enough(number):
    """Return "1 is enough" or "2 are enough"."""
    return f"{number} is enough" if number == 1 else f"{number} are enough"


def a_kind(value):
    """Return the type of a value with its article: "a list", "an ndarray", "None"."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' or name == 'ndarray' else 'a'} {name}"


def decimal(number, digits):
    """Return a number with this many significant digits. Numbers from 1 to 10 million get more digits if this avoids an
    exponent."""
    if 1 <= abs(number) < 1e7:
        digits = max(digits, len(f"{abs(number):.0f}"))
    return f"{number:.{digits}g}"


def is_wide(letter):
    """Return whether a letter takes two columns of a terminal, as those of Chinese, Japanese and Korean do."""
    import unicodedata  # most users of this module don't need it

    return not letter.isascii() and unicodedata.east_asian_width(letter) in "WF"


def width(text):
    """Return how many columns of a terminal a text takes."""
    return len(text) + sum(map(is_wide, text))


def ljust(text, columns):
    """Return a text followed by spaces, so that it takes this many columns."""
    return text + " " * (columns - width(text))


def rjust(text, columns):
    """Return a text preceded by spaces, so that it takes this many columns."""
    return " " * (columns - width(text)) + text


def aligned(headings, rows):
    """Return the lines of a table of texts, with columns as wide as necessary and headings in the user's language."""
    headings = list(map(translated, headings))
    widths = [max(map(width, column)) for column in zip(headings, *rows)]
    return ["  ".join(map(ljust, row, widths)).rstrip() for row in (headings, *rows)]


def wrapped(text, columns, first="", others="", **options):
    """Return a text in lines of at most so many columns; `first` and `others` begin the first line and the others.

    Wide scripts have no spaces: a line of theirs ends between any two letters, but not before a full stop or behind an
    opening bracket. options: the options of textwrap.wrap, for a text without them.
    """
    if not any(map(is_wide, text)):
        import textwrap

        return textwrap.wrap(text, columns, initial_indent=first, subsequent_indent=others, **options)
    lines, line, empty = [], first, True
    for space, piece in re.findall(PIECES, text):
        if not empty and width(line + space + piece) > columns:
            lines.append(line.rstrip())
            line, empty = others, True
        line += piece if empty else space + piece
        empty = False
    return [*lines, line]
