"""``python -m handson prepare NAME``: make a data set's .npz file from the archive at its origin.

The archive is downloaded once, or passed by hand if there is no network, and used only if its SHA-256 is the one in
datasets.toml. It is CIFAR-10's binary version, so nothing is extracted to the disk or unpickled.
"""

import contextlib
import hashlib
import http.client
import tarfile
import time
import urllib.request
import zlib

from handson.files import written_aside
from handson.language import speak
from handson.training import data
from handson.training.data import DataError

CHUNK = 2**20  # bytes
SILENCE = 30  # seconds without data, after which a download fails
LONGEST_DOWNLOAD = 3600  # seconds
ABANDONED = 3600  # seconds without data, after which a .part file counts as abandoned

# bytes: the label, then the red, green and blue planes; https://www.cs.toronto.edu/~kriz/cifar.html
RECORD = 1 + 3 * 32 * 32
LARGEST_MEMBER = 10_000 * RECORD
TRAIN = [f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6)]
TEST = ["cifar-10-batches-bin/test_batch.bin"]
CLASSES = "cifar-10-batches-bin/batches.meta.txt"


def prepare(name, archive=None, say=speak):
    """Make the data set `name` from `archive`, or from its origin, unless a valid file exists. Return its path.

    `say` is called with each line for the user. Raises DataError.
    """
    if name not in data.catalog():
        raise DataError(f"there is no data set named {name!r}: the known ones are {', '.join(sorted(data.catalog()))}")
    path, entry = data.find(name)
    try:
        data.read(path, entry)
        say(f"{name} is ready: {path}")
        return path
    except DataError as problem:
        if "archive" not in entry:
            raise
        if path.exists():
            say(f"Preparing {name} again: {problem}")
    try:
        if archive is None:
            archive = fetch(entry["archive"], path.parent, say)
        else:
            verify(archive, entry["archive"])
        say(f"Reading {archive}")
        train, test, classes = read_cifar10(archive)
        write(path, train, test, classes, entry)
    except OSError as error:
        reason = error.strerror or error
        raise DataError(
            f"{path.parent} cannot hold {name} ({reason}): make room, or choose a folder with HANDSON_DATA"
        ) from None
    data.read(path, entry)
    say(f"{name} is ready: {path}")
    return path


def fetch(archive, folder, say=speak):
    """Return the path of `archive` (url, size, sha256) in `folder`, and download it if it is missing. Raises DataError,
    OSError."""
    path = folder / archive["url"].rpartition("/")[2]
    if path.exists():
        verify(path, archive)
        return path
    for part in folder.glob("*.part"):  # left over from a run that was killed
        with contextlib.suppress(OSError):  # another process has removed it, or it belongs to another user
            if time.time() - part.stat().st_mtime > ABANDONED:
                part.unlink()
    say(f"Downloading {archive['url']} ({archive['size']:,} bytes) to {path}")
    download(archive, path)
    return path


def download(archive, path):
    """Download `archive` (url, size, sha256) to `path`, completely or not at all. Raises DataError, OSError."""
    from tqdm import tqdm

    digest, received = hashlib.sha256(), 0
    with written_aside(path) as file, tqdm(total=archive["size"], unit="B", unit_scale=True, disable=None) as bar:
        for chunk in _chunks(archive["url"]):
            received += len(chunk)
            if received > archive["size"]:
                break
            digest.update(chunk)
            file.write(chunk)
            bar.update(len(chunk))
        if received < archive["size"]:
            raise DataError(
                f"the download of {archive['url']} ended after {received:,} of {archive['size']:,} bytes: try again, "
                "or fetch the file in another way and give it with --archive FILE"
            )
        if received > archive["size"] or digest.hexdigest() != archive["sha256"]:
            raise DataError(
                f"{archive['url']} is not the file whose SHA-256 is in datasets.toml: "
                "fetch that file from elsewhere and pass it with --archive FILE"
            )


def _chunks(url):
    """Yield the content of `url` in chunks. Raises DataError if the network fails or is too slow."""
    deadline = time.monotonic() + LONGEST_DOWNLOAD
    try:
        with urllib.request.urlopen(url, timeout=SILENCE) as response:
            while chunk := response.read(CHUNK):
                yield chunk
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not done after {LONGEST_DOWNLOAD} seconds")
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error) if not hasattr(error, "code") else f"{error.code} {error.reason}"
        raise DataError(
            f"{url} cannot be downloaded ({reason}): check the network, or fetch the file on another machine "
            "and give it with --archive FILE"
        ) from None


def verify(path, archive):
    """Check that the file `path` is `archive` (size in bytes, sha256). Raises DataError."""
    cure = f"delete it or give another with --archive FILE; the right one is {archive['url']}"
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            if size < archive["size"]:
                raise DataError(f"{path} is truncated ({size:,} bytes instead of {archive['size']:,}): {cure}")
            if size > archive["size"] or hashlib.file_digest(file, "sha256").hexdigest() != archive["sha256"]:
                raise DataError(
                    f"{path} is another file or was altered (its SHA-256 is not {archive['sha256']}): {cure}"
                )
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): give the archive with --archive FILE") from None


def read_cifar10(path):
    """Return the training records, the test records (uint8, (samples, RECORD)) and the class names of CIFAR-10's binary
    archive.

    Members are read into memory one at a time, by name; a member that is too large is refused. Raises DataError.
    """
    import numpy

    members = dict.fromkeys([*TRAIN, *TEST, CLASSES])
    try:
        with tarfile.open(path, "r:gz") as tar:
            for member in tar:
                if member.name in members:
                    if not member.isreg() or member.size > LARGEST_MEMBER:
                        raise DataError(
                            f"{path} contains {member.name} in a wrong form: give the binary version of CIFAR-10"
                        )
                    members[member.name] = tar.extractfile(member).read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{path} is not an intact .tar.gz archive ({error}): give the binary version of CIFAR-10"
        ) from None
    for name, content in members.items():
        if not content or (name != CLASSES and len(content) % RECORD):
            raise DataError(f"{path} lacks {name}, or not all of it is there: give the binary version of CIFAR-10")

    def records(names):
        return numpy.concatenate([numpy.frombuffer(members[name], "uint8").reshape(-1, RECORD) for name in names])

    return records(TRAIN), records(TEST), members[CLASSES].decode("ascii", "replace").split()


def write(path, train, test, classes, entry):
    """Write the share entry["fraction"] of `train` and of `test` records, drawn at random, as the data set `path`.
    Raises OSError."""
    import numpy

    random = numpy.random.RandomState(entry.get("seed", 0))  # gives the same numbers in every version of NumPy

    def choose(records):
        chosen = random.permutation(len(records))[: round(len(records) * entry.get("fraction", 1))]
        return records[chosen, 1:].reshape(-1, 3, 32, 32), records[chosen, 0]

    train_images, train_labels = choose(train)
    test_images, test_labels = choose(test)
    with written_aside(path) as file:
        numpy.savez(
            file,
            train_images=train_images,
            train_labels=train_labels,
            test_images=test_images,
            test_labels=test_labels,
            classes=classes,
            maximum=numpy.uint8(255),
            archive_sha256=entry["archive"]["sha256"],
        )
