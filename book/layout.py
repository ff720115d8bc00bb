"""How Sphinx lays out outputs and figures: a long log is folded, and a tap on a figure opens its file."""

from docutils import nodes
from sphinx.transforms import SphinxTransform

from book import folding

words = ""  # of folding.folded, in the language of the book


class FoldedLogs(SphinxTransform):
    default_priority = 300

    def apply(self):
        for block in list(self.document.findall(nodes.literal_block)):
            if "stream" in block["classes"] and (parts := folding.parts(block.astext())):
                first, last = parts
                shown = nodes.literal_block(last, last, **block.attributes)
                block.replace_self([nodes.raw("", folding.folded(first, words), format="html"), shown])


class FiguresLeadToFiles(SphinxTransform):
    """Sphinx gives a picture with a width a link to its file. Those of notebooks have one."""

    default_priority = 300

    def apply(self):
        for picture in self.document.findall(nodes.image):
            if not {"width", "scale"} & picture.attributes.keys():
                picture["width"] = "100%"
