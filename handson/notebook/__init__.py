"""The modules that notebooks import: measurements, a student's runs, figures, and ranks that run cells."""


def ranks(number=4, track="pytorch", nodes=None):
    """Start ranks that run the cells of this notebook: see handson.notebook.live_ranks.ranks."""
    from handson.notebook import live_ranks  # ipyparallel takes a second to import

    return live_ranks.ranks(number, track, nodes)
