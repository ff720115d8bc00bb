"""The seeds from which the inputs of checks are drawn: they depend on a secret of the instructor and on the submission.

So nobody can predict the inputs, a table of answers for one attempt is useless in the next, and the same files graded
again get the same inputs. If an oracle computes the expected values, which takes as long as the check itself, the
inputs are one of SETS sets, so that a class shares the oracles' work. A table of a training run for all sets would have
to contain the parameters after every step of every case: more than the longest file that is judged
(grader.judging.LONGEST_FILE).
"""

import hmac
import os
import secrets
from pathlib import Path

from handson.errors import OneSentence

NAME = "inputs.secret"
SETS = 16


class SecretError(OneSentence, OSError):
    """The reason why the secret cannot be read or written."""


def secret(folder):
    """Return the secret in a gradebook's folder, as bytes. It is created if it is missing. Raises SecretError."""
    path = Path(folder) / NAME
    try:
        if not path.exists():
            made = path.with_name(f"{NAME}.{os.getpid()}")
            with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(secrets.token_hex(32) + "\n")
                file.flush()
                os.fsync(file.fileno())
            made.rename(path)
        return bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        raise SecretError(
            f"{path} can't be used ({error}): restore a copy of it, or delete it to draw new inputs for all students"
        ) from None


def of(secret, student, digest):
    """Return (the seed of one submission's inputs, the seed of the set that it shares with other submissions)."""
    own = _number(secret, "submission", student, digest)
    return own, _number(secret, "set", str(own % SETS))


def _number(secret, *parts):
    return int.from_bytes(hmac.digest(secret, "\0".join(parts).encode(errors="replace"), "sha256")[:4], "big") >> 1
