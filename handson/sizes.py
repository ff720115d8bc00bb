"""Convert sizes of a GPU's memory from and to text."""

import math
import re

UNLIMITED = "unlimited"  # a GPU whose tensors are counted, but never refused
UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
SIZES = f"a number with KB, MB, GB or TB such as 300MB, or {UNLIMITED}"


def bytes_of(text):
    """Return the bytes of ``300MB`` or ``1.5gb`` (a MB has 2**20 bytes, as in nvidia-smi and PBS); math.inf for
    ``unlimited``. Raises ValueError."""
    text = str(text).strip().lower()
    if text == UNLIMITED:
        return math.inf
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([kmgt]?)i?b", text)
    size = int(float(found[1]) * 2 ** UNITS[found[2]]) if found else 0
    if not 0 < size < 2**60:
        raise ValueError(f"the memory of a GPU is {SIZES}, not {text[:40]!r}")
    return size


def words(size):
    """Return bytes in words, such as ``300.0 MiB``."""
    if size == math.inf:
        return UNLIMITED
    unit = next((unit for unit in ("GiB", "MiB", "KiB") if size >= 2 ** UNITS[unit[0].lower()]), "B")
    return f"{size / 2 ** UNITS[unit[0].lower()]:.1f} {unit}" if unit != "B" else f"{size:.0f} B"
