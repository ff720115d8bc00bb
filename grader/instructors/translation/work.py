"""The commands of a translator: ``python -m grader catalogues``."""

import json

from grader.instructors.translation import catalogues
from grader.instructors.translation.catalogues import CatalogueError
from handson.words import aligned


def update_and_count(language, say):
    """Update all catalogues of a language, and print how far each one is."""
    catalogues.update(language)
    rows, complete = [], catalogues.complete()
    for domain in catalogues.domains():
        found = catalogues.count(language, domain)
        numbers = (found.done, found.missing, found.outdated, found.words)
        rows.append((domain, *map(str, numbers), "complete" * (domain in complete)))
    total = [str(sum(int(row[column]) for row in rows)) for column in range(1, 5)]
    rows.append(("all", *total, ""))
    for line in aligned(("catalogue", "translated", "missing", "outdated", "words", ""), rows):
        say(line)


def to_do(language, domain):
    """Return the missing and outdated translations of a domain, as JSON."""
    return json.dumps(catalogues.to_do(language, _known(domain)), ensure_ascii=False, indent=1)


def put(language, domain, file, say):
    """Put the translations of a JSON file into a catalogue. Returns 1 if some were refused."""
    try:
        given = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CatalogueError(f"{file} cannot be read as JSON ({error}): write what `catalogues todo` prints") from None
    refused = catalogues.put(language, _known(domain), given)
    for sentence in refused:
        say(f"refused: {sentence}")
    found = catalogues.count(language, domain)
    say(f"{domain}: {found.done} translated, {found.missing} missing, {found.outdated} outdated.")
    return int(bool(refused))


def _known(domain):
    if domain not in catalogues.domains():
        raise CatalogueError(f"there is no catalogue {domain!r:.40}: choose one of {', '.join(catalogues.domains())}")
    return domain
