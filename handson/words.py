"""How messages count things."""


def counted(number, noun):
    """"1 node", "2 nodes". number: a number, or the text that stands for it."""
    return f"{number} {noun}{'s' * (str(number) != '1')}"
