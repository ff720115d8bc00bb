"""Several cases in the same ranks: a process costs more than most cases do."""

import importlib


def each(rank, ranks, function, arguments, cases):
    """A list of what ``function(rank, ranks, *arguments, case)``, named "module:name", gives for each of `cases`."""
    module, name = function.split(":")
    called = getattr(importlib.import_module(module), name)
    return [called(rank, ranks, *arguments, case) for case in cases]
