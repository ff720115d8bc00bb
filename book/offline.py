"""Looks through the built pages: they must be readable without a network, and pictures need words."""

import re
from html.parser import HTMLParser

REQUESTS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}
ELSEWHERE = re.compile(r"(?:https?:)?//")
IN_CSS = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//")


class Page(HTMLParser):
    """Collects what is wrong with a page."""

    def __init__(self, name):
        super().__init__()
        self.name, self.problems = name, []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        address = found.get(REQUESTS.get(tag)) or ""
        if ELSEWHERE.match(address) and found.get("rel") not in ("canonical", "author", "license"):
            self.problems.append(f"{self.name}: <{tag}> fetches {address} from another host")
        if tag == "img" and not (found.get("alt") or "").strip() and "data:" not in address:
            self.problems.append(f"{self.name}: the picture {address} has no alternative text")


def problems(folder):
    """Return the sentences on what is wrong with the pages and style sheets in `folder`."""
    found = []
    for path in sorted(folder.rglob("*.html")):
        page = Page(path.relative_to(folder))
        page.feed(path.read_text())
        found += page.problems
    for path in sorted(folder.rglob("*.css")):
        if IN_CSS.search(path.read_text()):
            found.append(f"{path.relative_to(folder)}: fetches something from another host")
    return found
