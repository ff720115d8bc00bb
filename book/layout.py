"""How Sphinx lays out outputs and figures: a long log is folded, and a tap on a figure opens its file."""

from docutils import nodes
from sphinx.transforms import SphinxTransform

from book import folding

words = ""  # of folding.summary, in the language of the book


class FoldedLogs(SphinxTransform):
    default_priority = 300

    def apply(self):
        for cell in self.document.findall(nodes.container):
            if f"tag_{folding.LOG}" not in cell["classes"]:
                continue
            for block in list(cell.findall(nodes.literal_block)):
                if "stream" in block["classes"] and (before := folding.summary(block.astext(), words)):
                    block.replace_self([_html(before), block, _html("</details>")])


class FiguresLeadToFiles(SphinxTransform):
    """Sphinx gives a picture with a width a link to its file. Those of notebooks have one."""

    default_priority = 300

    def apply(self):
        for picture in self.document.findall(nodes.image):
            if not {"width", "scale"} & picture.attributes.keys():
                picture["width"] = "100%"


def _html(text):
    return nodes.raw("", text, format="html")
