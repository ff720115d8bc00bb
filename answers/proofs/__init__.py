"""What a unit's proof.py says: how its known answers are proved right or wrong, by answers/proofs/proof_*.py.
All of it may be missing.

INPUTS    {gap of the notebook: function(chance) -> the arguments of a call, by name}; other gaps get those that their
    check draws
MEASURED  {name: a value of its kind} of what the notebook measures, and predictions may follow from
WHOLE     gaps of the notebook whose numbers are counts: a function's must be of type int, or lists of such
EXPECTED  {prediction: the range (lowest, highest) of what one can reasonably expect}
NAMED     {prediction: the names of which it has each once, in any order}
SHOWN     {value in the notebook: function(value) -> numbers that are the same for all right answers, what shows that
    they are right}
CASES     {track: the Case that the training script of this track runs with}
RUNS      {file below solutions/NN_topic/: the Run that shows what its gaps do}
OF_GAP    {(file, gap): the runs for that gap, where others than those of its file show it}
DIVIDED   gaps whose right answers may divide the network otherwise: what all ranks compute is compared, added up
"""

import importlib
from dataclasses import asdict
from typing import NamedTuple

from answers import known
from handson.files import COURSE

NOTHING = {
    "INPUTS": {},
    "MEASURED": {},
    "WHOLE": (),
    "EXPECTED": {},
    "NAMED": {},
    "SHOWN": {},
    "CASES": {},
    "RUNS": {},
    "OF_GAP": {},
    "DIVIDED": (),
}


class Case(NamedTuple):
    """What the scripts of a unit run with: the images don't divide, so that shards and last batches are uneven.

    more_images: as many in a run whose ranks don't have equally many full batches, where right answers may differ in
    what they train on.
    """

    gpus: str
    images: int
    batchsize: int
    more_images: int = 0


class Run(NamedTuple):
    """How the gaps of a file are run: by which script beside it, in how many ranks, with which options, one run after
    the other.

    beside: (file, gap, its answer) of another script, in place of the solution's; replaced: text of the script, and
    what stands there instead; printed: which lines that an MPI script prints are a result, a pattern; goes_on: later
    runs find what earlier ones have written; in_any_order: the ranks' messages come in another order each time. In the
    options, {folder} is where data sets are.
    """

    script: str
    ranks: int
    options: tuple = ("",)
    mpi: bool = False
    nodes: int = 1
    beside: tuple = ()
    replaced: tuple = ("", "")
    printed: str = ""
    goes_on: bool = False
    in_any_order: bool = False


def of_unit(unit, name):
    """One of the values above, of a unit."""
    if not (COURSE / "answers" / unit / "proof.py").is_file():
        return NOTHING[name]
    return getattr(importlib.import_module(f"answers.{unit}.proof"), name, NOTHING[name])


def entries(unit, folder=""):
    """known.of_unit, each answer as a dictionary."""
    return tuple([asdict(answer) for answer in answers] for answers in known.of_unit(unit, folder))
