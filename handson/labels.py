"""Figures in the user's language: their texts are translated before they are drawn, if a font has its letters."""

import functools
import importlib.util
import tomllib
from pathlib import Path

from handson.language import ENGLISH, LOCALE, chosen, translated


def in_language(drawing, description):
    """Translate the texts of a matplotlib Figure, and return its description for those who do not see it. Without a
    font for the language, the figure stays English."""
    language = chosen()
    if language == ENGLISH:
        return description
    if font := font_of(language):
        _translate(drawing, font)
    return translated(description)


def _translate(drawing, font):
    from matplotlib import rcParams
    from matplotlib.text import Text
    from matplotlib.ticker import FixedLocator

    for axes in drawing.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_locator(), FixedLocator):
                labels = [label.get_text() for label in axis.get_ticklabels()]
                if (others := list(map(translated, labels))) != labels:
                    axis.set_ticklabels(others, fontfamily=[*rcParams["font.family"], font])
    for text in drawing.findobj(Text):
        if (other := translated(text.get_text())) != text.get_text():
            text.set(text=other, fontweight="normal")  # few fonts with so many letters have bold ones
            text.set_fontfamily(
                [*rcParams["font.family"], font]
            )  # letters that the first one lacks come from the other


@functools.cache
def font_of(language):
    """Return the name of a font with the language's letters, or None. An installed font comes before a font from a
    package. locale/LANGUAGE/language.toml names both."""
    from matplotlib import font_manager

    try:
        facts = tomllib.loads((LOCALE / language / "language.toml").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    here = {font.name for font in font_manager.fontManager.ttflist}
    if found := next((name for name in facts.get("fonts", ()) if name in here), None):
        return found
    for package in facts.get("font_packages", ()):
        spec = importlib.util.find_spec(package)  # importing it could change how all figures look
        for path in sorted(Path(spec.origin).parent.rglob("*.[to]tf")) if spec and spec.origin else ():
            font_manager.fontManager.addfont(path)
            return font_manager.fontManager.ttflist[-1].name
    return None
