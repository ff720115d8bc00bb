"""Links from a page's text to the glossary: the first time that a page uses one of its words."""

import re

from docutils import nodes
from docutils.nodes import SkipNode  # noqa: F401  # for conf.py
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

terms = []  # of the glossary, as its page has them
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
        words = {term.casefold(): term for term in terms}
        left = dict(words)
        for text in list(self.document.findall(nodes.Text)):
            if not _inside(text, NOT_IN) and (found := _parts(text.astext(), left)):
                text.parent.replace(text, found)


def _inside(node, kinds):
    while node := node.parent:
        if isinstance(node, kinds) and not isinstance(node, nodes.emphasis):
            return True
    return False


def _parts(text, left):
    """The text in parts, the first use of each word of `left` as a link; None without any. Removes them from `left`."""
    pattern = re.compile(
        "|".join(rf"(?<![\w-]){re.escape(word)}(?:s|es)?(?![\w-])" for word in sorted(left, key=len, reverse=True)),
        re.IGNORECASE,
    )
    found, place = [], 0
    for match in pattern.finditer(text) if left else ():
        word = next((one for one in (match[0], match[0][:-1], match[0][:-2]) if one.casefold() in left), None)
        if word is None:
            continue
        term = left.pop(word.casefold())
        link = addnodes.pending_xref(
            "", nodes.inline("", match[0], classes=["std", "std-term"]), refdomain="std", reftype="term", reftarget=term
        )
        link["classes"].append("glossary-link")
        found += [nodes.Text(text[place : match.start()]), link]
        place = match.end()
    return [*found, nodes.Text(text[place:])] if found else None
