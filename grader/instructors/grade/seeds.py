"""The seeds from which the inputs of checks are drawn: they follow from a secret of the instructor and from what a
student handed in.

So nobody can know the inputs beforehand, a table of answers for the inputs of one attempt is worth nothing in the next,
and the same files graded again get the same inputs. Where an oracle computes what is right, which takes as long as the
check itself, the inputs are one of SETS sets, which follow from the secret, too, so that a class shares the oracles'
work. Of a training, a table for all sets would have to hold the parameters after every step of every case in each of
them: more than the longest file that is judged (grader.judging.LONGEST_FILE).
"""

import hmac
import os
import secrets
from pathlib import Path

from handson.errors import OneSentence

NAME = "inputs.secret"
SETS = 16


class SecretError(OneSentence, OSError):
    """A sentence on why the secret can't be read or written."""


def secret(folder):
    """The secret in a gradebook's folder, as bytes. It is made if there is none. Raises SecretError."""
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
            f"{path} can't be used ({error}): put a copy of it back, or delete it, and all inputs will be new ones"
        ) from None


def of(secret, student, digest):
    """(the seed of one submission's inputs, the seed of the set that it shares with other submissions)."""
    own = _number(secret, "submission", student, digest)
    return own, _number(secret, "set", str(own % SETS))


def _number(secret, *parts):
    return int.from_bytes(hmac.digest(secret, "\0".join(parts).encode(errors="replace"), "sha256")[:4], "big") >> 1
