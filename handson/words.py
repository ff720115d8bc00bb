"""How messages count things."""


def counted(number, noun):
    """ "1 node", "2 nodes". number: a number, or the text that stands for it."""
    return f"{number} {noun}{'s' * (str(number) != '1')}"


def aligned(headings, rows):
    """The lines of a table of texts, each column as wide as it has to be."""
    widths = [max(map(len, column)) for column in zip(headings, *rows)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (headings, *rows)]
