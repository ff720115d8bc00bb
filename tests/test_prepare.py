"""Preparing CIFAR-10: from an archive at hand or from its origin, checked, and complete or not at all."""

import hashlib
import http.server
import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from contextlib import suppress

import numpy
import pytest

from handson.training import prepare as module
from handson.training.data import DataError, load_arrays
from handson.training.prepare import CLASSES, RECORD, TEST, TRAIN, prepare

NAME = "cifar10_256px_5p"
CLASS_NAMES = "airplane automobile bird cat deer dog frog horse ship truck".split()


def records(count, seed):
    """`count` records of CIFAR-10's binary version: a label and 3072 pixels, all of them telling the record's
    number."""
    made = numpy.random.RandomState(seed).randint(0, 256, (count, RECORD)).astype("uint8")
    made[:, 0] = numpy.arange(count) % 10
    return made


TRAIN_RECORDS = [records(200, seed) for seed in range(5)]
TEST_RECORDS = records(200, 5)


def archive(path, change=None):
    """Write an archive as CIFAR-10's origin has it, only smaller; `change` may alter its members (name -> bytes or
    TarInfo)."""
    members = {name: part.tobytes() for name, part in zip(TRAIN + TEST, [*TRAIN_RECORDS, TEST_RECORDS])}
    members[CLASSES] = ("\n".join(CLASS_NAMES) + "\n\n").encode()
    members["cifar-10-batches-bin/readme.html"] = b"<html>"
    if change:
        change(members)
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, content in members.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            content = b"" if info is content else content
            info.size = info.size or len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def register(folder, path, url="http://127.0.0.1:9/cifar-10-binary.tar.gz", **changes):
    """Make `path` the archive that datasets.toml in `folder` asks for."""
    content = path.read_bytes()
    entry = {"url": url, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()} | changes
    toml = f'[{NAME}]\ntitle = "CIFAR10"\nfraction = 0.05\nseed = 0\n[{NAME}.archive]\n'
    toml += "".join(f"{key} = {value!r}\n" for key, value in entry.items())
    folder.mkdir(exist_ok=True)
    (folder / "datasets.toml").write_text(toml)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder."""
    monkeypatch.setenv("HANDSON_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def given(tmp_path, folder):
    """The path of a small archive that the data folder's datasets.toml asks for."""
    path = archive(tmp_path / "given.tar.gz")
    register(folder, path)
    return path


@pytest.fixture
def origin(tmp_path, folder):
    """A web server that holds the small archive; its attributes say how it misbehaves."""
    content = archive(tmp_path / "origin.tar.gz").read_bytes()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            server.requests += 1
            self.send_response(server.status)
            if server.announce:
                self.send_header("Content-Length", str(len(server.content)))
            self.end_headers()
            if server.status == 200:
                with suppress(ConnectionError):  # the client has refused what it got so far
                    self.wfile.write(server.content[: server.stop_after])
                    self.wfile.flush()
                server.go_on.wait(30)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.requests, server.status, server.content, server.stop_after, server.announce = 0, 200, content, None, True
    server.go_on = threading.Event()
    server.go_on.set()
    register(folder, tmp_path / "origin.tar.gz", f"http://127.0.0.1:{server.server_port}/kriz/cifar-10-binary.tar.gz")
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    yield server
    server.go_on.set()
    server.shutdown()
    server.server_close()


def left(folder):
    """What is in the data folder besides the catalog."""
    return sorted(path.name for path in folder.iterdir() if path.name != "datasets.toml")


def run(*arguments):
    command = [sys.executable, "-m", "handson", "prepare", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def fails(*arguments):
    """The one sentence with which `python -m handson prepare` fails."""
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("handson prepare: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_five_percent_of_the_images_are_kept_with_their_labels(given):
    prepare(NAME, given)
    train, test = load_arrays(NAME)
    assert (train.name, train.classes) == ("CIFAR10", tuple(CLASS_NAMES))
    assert (train.images.shape, test.images.shape) == ((50, 3, 32, 32), (10, 3, 32, 32))
    for part, all_records in ((train, numpy.concatenate(TRAIN_RECORDS)), (test, TEST_RECORDS)):
        label = {record[1:].tobytes(): record[0] for record in all_records}
        kept = [(image * 255).round().astype("uint8").tobytes() for image in part.images]
        assert [label[pixels] for pixels in kept] == part.labels.tolist()
        assert len(set(kept)) == len(kept)
    # from every batch
    assert len({index // 200 for index in numpy.flatnonzero(numpy.isin(range(1000), _indices(train)))}) == 5


def _indices(part):
    where = {record[1:].tobytes(): index for index, record in enumerate(numpy.concatenate(TRAIN_RECORDS))}
    return [where[(image * 255).round().astype("uint8").tobytes()] for image in part.images]


def test_the_choice_is_the_same_on_every_machine(given):
    path = prepare(NAME, given)
    first = path.read_bytes()
    # a change here makes everybody's results differ
    assert _indices(load_arrays(NAME)[0])[:5] == [993, 859, 298, 553, 672]
    path.unlink()
    assert prepare(NAME, given).read_bytes() == first


def test_preparing_again_does_nothing(given, folder):
    path = prepare(NAME, given)
    before = path.stat()
    given.unlink()
    said = []
    assert prepare(NAME, say=said.append) == path
    assert path.stat() == before and "is ready" in said[0] and len(said) == 1


def test_a_damaged_set_is_made_anew(given):
    path = prepare(NAME, given)
    sound = path.read_bytes()
    path.write_bytes(sound[:5000])
    said = []
    prepare(NAME, given, said.append)
    assert path.read_bytes() == sound and "again" in said[0]


def test_a_set_from_another_archive_is_refused(given, folder, tmp_path):
    prepare(NAME, given)
    register(folder, archive(tmp_path / "second.tar.gz", lambda members: members.update({"extra": b"1"})))
    with pytest.raises(DataError, match="from an archive other than"):
        load_arrays(NAME)


@pytest.mark.thorough
def test_the_archive_is_downloaded_once(origin, folder):
    done = run(NAME)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Downloading http://127.0.0.1" in done.stdout and f"{NAME} is ready" in done.stdout
    (folder / f"{NAME}.npz").unlink()
    prepare(NAME)
    assert origin.requests == 1
    assert left(folder) == ["cifar-10-binary.tar.gz", f"{NAME}.npz"]


@pytest.mark.parametrize("announce", [True, False])
def test_a_download_that_ends_early_leaves_nothing(origin, folder, announce):
    origin.stop_after, origin.announce = 100_000, announce
    with pytest.raises(DataError, match="ended after 100,000 of"):
        prepare(NAME)
    assert left(folder) == []


@pytest.mark.parametrize("change", [lambda content: content[:-1] + b"x", lambda content: content + b"x"])
def test_a_download_with_another_checksum_leaves_nothing(origin, folder, change):
    origin.content = change(origin.content)
    with pytest.raises(DataError, match="is not the file whose SHA-256"):
        prepare(NAME)
    assert left(folder) == []


@pytest.mark.thorough
def test_no_network_is_one_sentence_that_tells_the_way_out(tmp_path, folder):
    with socket.socket() as listener:  # bound, not listening: connections are refused
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/cifar-10-binary.tar.gz"
        register(folder, archive(tmp_path / "any.tar.gz"), url)
        message = fails(NAME)
    assert "Connection refused" in message and "--archive FILE" in message
    assert left(folder) == []


def test_a_download_that_drips_is_given_up(origin, folder, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_DOWNLOAD", -1)
    with pytest.raises(DataError, match="not done after"):
        prepare(NAME)
    assert left(folder) == []


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_download_leaves_nothing(origin, folder, number):
    origin.stop_after = 2 * module.CHUNK
    origin.go_on.clear()
    process = subprocess.Popen(
        [sys.executable, "-m", "handson", "prepare", NAME], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 30
    while not any(name.endswith(".part") for name in left(folder)):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number and b"Traceback" not in err
    assert left(folder) == []


def test_leftovers_of_a_killed_download_are_removed_but_not_those_of_a_running_one(origin, folder):
    old, new = folder / "cifar-10-binary.tar.gz.0.part", folder / "cifar-10-binary.tar.gz.1.part"
    for path in (old, new):
        path.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    prepare(NAME)
    assert new.exists() and not old.exists()


def link(members):
    members[TEST[0]] = tarfile.TarInfo(TEST[0])
    members[TEST[0]].type, members[TEST[0]].linkname = tarfile.SYMTYPE, "/etc/passwd"


def too_long(members):
    members[TRAIN[2]] = bytes(module.LARGEST_MEMBER + RECORD)


HOSTILE = {
    "wrong form": [link, too_long],
    "lacks cifar-10-batches-bin/data_batch_2.bin": [
        lambda members: members.pop(TRAIN[1]),
        lambda members: members.update({TRAIN[1]: members[TRAIN[1]][:-1]}),
        lambda members: members.update({TRAIN[1]: b""}),
    ],
    "lacks cifar-10-batches-bin/batches.meta.txt": [lambda members: members.pop(CLASSES)],
    "train_labels outside the 10 classes": [lambda members: members.update({TRAIN[0]: bytes([11]) * RECORD * 200})],
}


@pytest.mark.parametrize("message, change", [(message, change) for message in HOSTILE for change in HOSTILE[message]])
def test_an_archive_with_wrong_contents_is_explained(tmp_path, folder, message, change):
    path = archive(tmp_path / "hostile.tar.gz", change)
    register(folder, path)
    with pytest.raises(DataError, match=message):
        prepare(NAME, path)
