"""Links from a page's text to the glossary: the first time that a page uses one of its words. A word with several
meanings is a link only where an author has marked it: *stage*."""

from docutils import nodes
from docutils.nodes import SkipNode  # noqa: F401  # for conf.py
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

from book import vocabulary

terms = set()  # the glossary's terms, as its page has them
marked = set()  # the terms that are links only in italics
PAGES = ("index", "syllabus", "concepts/", "notebooks/", "docs/")
LEFT_OUT = ("docs/glossary", "docs/developing", "docs/adding_a_unit", "docs/grading", "docs/platforms", "docs/disputes")
NOT_IN = (
    nodes.title,
    nodes.literal,
    nodes.literal_block,
    nodes.math,
    nodes.math_block,
    nodes.reference,
    nodes.Inline,
    addnodes.pending_xref,
    addnodes.toctree,
)


class GlossaryLinks(SphinxTransform):
    default_priority = 300

    def apply(self):
        page = self.env.current_document.docname
        if not page.startswith(PAGES) or page.startswith(LEFT_OUT) or not terms:
            return
        left = terms - marked
        left_in_italics = set(marked)
        for text in list(self.document.findall(nodes.Text)):
            if _inside(text, NOT_IN):
                continue
            words = text.astext()
            in_italics = isinstance(text.parent, nodes.emphasis) and vocabulary.word_of(words, marked)
            if found := _parts(words, left_in_italics if in_italics else left):
                text.parent.replace(text, found)


def _inside(node, kinds):
    while node := node.parent:
        if isinstance(node, kinds) and not isinstance(node, nodes.emphasis):
            return True
    return False


def _parts(text, left):
    """Return the parts of a text, in which the first use of each word of the glossary is a link, or None if there is
    none."""
    found, place = [], 0
    for begin, end, term in vocabulary.first_uses(text, terms, left):
        link = addnodes.pending_xref(
            "", nodes.inline("", text[begin:end]), refdomain="std", reftype="term", reftarget=term
        )
        link["classes"].append("glossary-link")
        found += [nodes.Text(text[place:begin]), link]
        place = end
    return [*found, nodes.Text(text[place:])] if found else None
