"""Links from a page's text to the glossary: the first time that a page uses one of its words."""

from docutils import nodes
from docutils.nodes import SkipNode  # noqa: F401  # for conf.py
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

from book.vocabulary import first_uses

terms = []  # the glossary's terms, in the order of its page
PAGES = ("index", "syllabus", "concepts/", "notebooks/", "docs/")
LEFT_OUT = ("docs/glossary", "docs/developing", "docs/adding_a_unit", "docs/grading", "docs/platforms", "docs/disputes")
NOT_IN = (
    nodes.title,
    nodes.literal,
    nodes.literal_block,
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
        left = {term.casefold(): term for term in terms}
        for text in list(self.document.findall(nodes.Text)):
            if not _inside(text, NOT_IN) and (found := _parts(text.astext(), left)):
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
    for begin, end, term in first_uses(text, left):
        link = addnodes.pending_xref(
            "", nodes.inline("", text[begin:end]), refdomain="std", reftype="term", reftarget=term
        )
        link["classes"].append("glossary-link")
        found += [nodes.Text(text[place:begin]), link]
        place = end
    return [*found, nodes.Text(text[place:])] if found else None
