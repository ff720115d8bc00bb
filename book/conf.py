"""The settings of Sphinx for the book. `make book` collects the sources first (book/sources.py)."""

import json
import sys
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from latex2mathml.converter import convert
from sphinx.util import logging

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from book import layout, links, offline  # noqa: E402

project = "Hands-on distributed deep learning"
extensions = ["myst_nb", "sphinx_copybutton"]
exclude_patterns = ["files"]  # for downloads only
templates_path = [str(HERE / "templates")]

html_theme = "furo"
html_static_path = [str(HERE / "static")]
html_css_files = ["book.css"]
html_copy_source = False
html_show_sphinx = False
html_search_scorer = str(HERE / "static/search.js")
html_show_search_summary = False  # a browser fetches no summaries from the disk
html_show_copyright = False
html_math_renderer = "mathml"
html_theme_options = {"top_of_page_buttons": [], "footer_icons": []}
pygments_style, pygments_dark_style = "a11y-light", "a11y-dark"
highlight_language = "none"
smartquotes = False  # docstrings have texts of code in quotes

nb_execution_mode = "off"
nb_merge_streams = True
nb_ipywidgets_js = {}  # would be fetched from another host
myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_block"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = ["mystnb.unknown_mime_type"]
copybutton_prompt_text = ""


def setup(app):
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    app.connect("builder-inited", _begin)
    app.connect("html-page-context", _moving)
    app.connect("build-finished", _look)
    for transform in (links.GlossaryLinks, layout.FoldedLogs, layout.FiguresLeadToFiles):
        app.add_transform(transform)


def _speak(app, translated):
    """Give the words of the theme in the book's language. translated: word -> its translation."""
    language = app.config.language
    words = Catalog(locale=language)
    for word, other in translated.items():
        words.add(word, other)
    folder = Path(app.doctreedir) / "theme" / language / "LC_MESSAGES"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "sphinx.mo", "wb") as file:
        write_mo(file, words)
    app.add_message_catalog("sphinx", folder.parents[1])


def _inline(translator, node):
    translator.body.append(convert(node.astext()))
    raise links.SkipNode


def _block(translator, node):
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise links.SkipNode


def _begin(app):
    facts = json.loads((Path(app.srcdir) / "book.json").read_text())
    links.terms, links.marked = set(facts["terms"]), set(facts["marked"])
    layout.words = facts["folded"]
    _speak(app, facts["theme"])
    app.config.html_title = facts["title"]
    app.config.html_static_path.append(str(Path(app.srcdir) / "static"))
    if (Path(app.srcdir) / "static/letters.css").exists():
        app.add_css_file("letters.css")


def _moving(app, page, template, context, doctree):
    """Only a page with a figure that moves loads the script."""
    if "moving-" in context.get("body", ""):
        app.add_js_file("moving_data.js")
        app.add_js_file("moving.js")


def _look(app, exception):
    """With -W, a page that needs another host or has a picture without words ends the build."""
    for problem in [] if exception else offline.problems(Path(app.outdir)):
        logging.getLogger("book").warning(problem)
