"""Divide Markdown into the texts that are translated: headings, paragraphs, items of lists and cells of tables. Code
stays as it is.

`translate` is a function of a text. The function that collects texts for the catalogue is used in the same way, so both
see the same texts. A paragraph is one text, however its lines are wrapped.
"""

import functools
import re

from handson.catalogue import WORD

LINE_END = re.compile(r"(?<!\\)(?<!  )\n *")  # Markdown reads it as a space
NOT_PROSE = re.compile(r"`[^`]*`|\]\([^)]*\)|<[^>]*>|https?://\S+")
ANCHOR = re.compile(r"[^\w\- ]")


@functools.cache
def parser():
    """Return the parser of Markdown with tables, front matter and formulas."""
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin
    from mdit_py_plugins.front_matter import front_matter_plugin

    return MarkdownIt("commonmark").enable("table").use(front_matter_plugin).use(dollarmath_plugin)


def translate_markdown(text, translate, anchors=()):
    """Return a page, or the text of a notebook's cell, with each text translated.

    anchors: English names of headings to which links lead; these headings keep them.
    """
    lines = text.split("\n")
    inside, heading, cells = 0, False, {}
    for token in parser().parse(text):
        heading = token.type == "heading_open" or (heading and token.type != "heading_close")
        if token.type == "fence" and token.info.startswith("{"):
            first, end = token.map
            names = token.info.startswith("{toctree}")  # its lines are names of pages, not text
            body = _directive(token.content.rstrip("\n"), translate, lambda text: text if names else translate(text))
            indent = " " * (len(lines[first]) - len(lines[first].lstrip()))
            lines[first + 1 : end - 1] = [None] * (end - first - 2)
            lines[first] = "\n".join([lines[first], *(f"{indent}{line}".rstrip() for line in body.split("\n"))])
        inside += (token.type == "table_open") - (token.type == "table_close")
        if token.type != "inline" or not has_words(token.content):
            continue
        first, end = token.map
        if inside:
            cells.setdefault(first, []).append(token.content)
            continue
        english = LINE_END.sub(" ", token.content).strip()
        if (other := translate(english)) == english:
            continue  # the text stays wrapped as it was
        start = _first_line(token.content)
        before, _, after = lines[first].partition(start)
        anchor = f'<a id="{slug(english)}"></a>' if heading and slug(english) in anchors else ""
        lines[first] = before + anchor + other + (after if heading else "")
        lines[first + 1 : end] = [None] * (end - first - 1)
    for number, contents in cells.items():
        lines[number] = _row(lines[number], contents, translate)
    return "\n".join(line for line in lines if line is not None)


def _directive(content, translate, translate_body):
    """Return the content of a directive of MyST, such as a figure: its alternative text or caption, and the text below
    its options."""
    options = re.match(r"(?::[\w-]+:.*(?:\n|\Z))*", content)[0]
    texts = re.compile(r"^(:(?:alt|caption): )(.*)$", re.MULTILINE)
    translated = texts.sub(lambda found: found[1] + translate(found[2]), options)
    return translated + translate_markdown(content[len(options) :], translate_body)


def _first_line(content):
    return content.split("\n", 1)[0].strip()


def _row(line, contents, translate):
    """Return a row of a table with its cells translated."""
    done = ""
    for content in contents:
        written = content if content in line else content.replace("|", "\\|")
        before, found, line = line.partition(written)
        if not found:
            return done + before
        done += before + translate(content).replace("\\|", "|").replace("|", "\\|")
    return done + line


def has_words(text):
    """Return whether a text is more than code, links and numbers."""
    return bool(WORD.search(NOT_PROSE.sub(" ", text)))


def slug(heading):
    """Return the name that a page's links give to a heading."""
    return ANCHOR.sub("", heading.replace("`", "").lower()).strip().replace(" ", "-")


def marks(text):
    """Return how often a text has each mark of Markdown: code, bold, links and so on."""
    (inline,) = [token for token in parser().parse(text.strip("#- ")) if token.type == "inline"][:1] or [None]
    counts = {}
    for token in inline.children if inline else ():
        if token.type in ("code_inline", "strong_open", "em_open", "link_open", "image"):
            key = (
                token.type.removesuffix("_open"),
                token.content if token.type == "code_inline" else token.attrGet("href"),
            )
            counts[key] = counts.get(key, 0) + 1
    return counts
