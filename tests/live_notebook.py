"""A notebook without a browser: python live_notebook.py ARGUMENTS SITE CELL...

It starts live ranks with the arguments, as Python has them, on a site, and runs the cells on them.
"""

import sys

from IPython.core.interactiveshell import InteractiveShell

from handson.cluster import site

_, arguments, chosen, *cells = sys.argv
shell = InteractiveShell.instance()
with site.as_chosen(chosen):
    shell.run_cell(f"import handson.notebook\nranks = handson.notebook.ranks({arguments})").raise_error()
    for cell in cells:
        shell.run_cell(f"%%px\n{cell}")
    shell.run_cell("ranks.stop()")
