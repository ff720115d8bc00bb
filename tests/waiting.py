"""Let tests wait for a condition or a program's end, with a time limit."""

import subprocess
import time

PATIENCE = 90  # seconds, on a busy machine


def wait_until(condition, what, seconds=PATIENCE):
    """Wait for a true value of ``condition()`` and return it. what: the condition in words, or a function that gives
    them."""
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if value := condition():
            return value
        now = time.monotonic()
        assert now < end, f"waited {seconds} s in vain for: {what() if callable(what) else what}"
        time.sleep(min(0.5, max(0.02, 9 * (now - began))))  # what is waited for needs the cores, too


def whole(path, end="\n"):
    """The text of a file that is there and ends with `end`, else "": most programs write a file in place, and it is
    there before its text is."""
    text = path.read_text() if path.exists() else ""
    return text if text.endswith(end) else ""


def run_to_end(command, timeout=300, **options):
    """A program that has ended, its output and errors as text. options: those of subprocess.run."""
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **options)
