"""Data sets: found by name or path, checked before use, enlarged per batch."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import torch

from handson.training import data, progress
from handson.training.data import DataError, enlarge, load, load_arrays

CATALOG = '[{name}]\ntitle = "Tiny"\nsize = {size}\nsha256 = "{sha256}"\n'


def tiny(**changes):
    """The arrays of a small sound data set, with some of them replaced; those that are None are left out."""
    random = numpy.random.RandomState(1)
    arrays = {
        "train_images": random.randint(0, 256, (6, 3, 4, 4)).astype("uint8"),
        "train_labels": numpy.array([0, 1, 0, 1, 0, 1], "uint8"),
        "test_images": random.randint(0, 256, (2, 3, 4, 4)).astype("uint8"),
        "test_labels": numpy.array([1, 0], "uint8"),
        "classes": numpy.array(["cat", "dog"]),
        "maximum": numpy.uint8(255),
    }
    return {name: array for name, array in (arrays | changes).items() if array is not None}


def saved(path, **changes):
    numpy.savez(path, **tiny(**changes))
    return path


def sentence(error):
    """The text of an error, which is one line."""
    text = str(error.value)
    assert "\n" not in text
    return text


def test_digits_are_1500_training_and_297_test_images_of_ten_digits():
    train, test = load("digits")
    assert (len(train), len(test)) == (1500, 297)
    assert (train.images.shape, test.images.shape) == ((1500, 1, 8, 8), (297, 1, 8, 8))
    assert train.images.dtype == torch.float32 and train.labels.dtype == torch.int64
    assert (train.images.min(), train.images.max()) == (0, 1)
    assert (train.name, train.classes) == ("digits", tuple("0123456789"))
    assert set(train.labels.tolist()) == set(test.labels.tolist()) == set(range(10))


def test_arrays_hold_what_the_tensors_hold():
    for arrays, tensors in zip(load_arrays("digits"), load("digits")):
        assert isinstance(arrays.images, numpy.ndarray) and isinstance(arrays.labels, numpy.ndarray)
        assert numpy.array_equal(arrays.images, tensors.images) and numpy.array_equal(arrays.labels, tensors.labels)
        assert (arrays.images.dtype, arrays.labels.dtype) == ("float32", "int64")


def test_what_enlarges_images_on_a_gpu_is_copied_there_once():
    matrix = data._on_gpu(8, 16, torch.device("cpu"), torch.float32)
    assert matrix is data._on_gpu(8, 16, torch.device("cpu"), torch.float32)
    assert torch.equal(matrix, torch.tensor(data.stretching(8, 16), dtype=torch.float32))


def test_a_rank_that_evaluates_for_long_makes_progress(monkeypatch):
    noted = []
    monkeypatch.setattr(progress, "progress", lambda: noted.append("a batch"))
    for _ in range(3):
        enlarge(torch.zeros(2, 3, 4, 4), 8)
    assert len(noted) == 3


def test_arrays_of_a_library_that_names_no_namespace_are_enlarged_there(monkeypatch):
    """As those of CuPy 13 and 14 are, on their device."""

    class Array(numpy.ndarray):
        __array_namespace__ = property(lambda self: {}["none"])
        __module__ = "cupy"

    made = []
    cupy = SimpleNamespace(
        asarray=lambda matrix, dtype: made.append(matrix) or numpy.asarray(matrix, dtype).view(Array)
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    images = numpy.random.RandomState(0).rand(2, 1, 4, 4).astype("float32")
    assert numpy.array_equal(enlarge(images.view(Array), 8), enlarge(images, 8)) and len(made) == 2


def test_arrays_are_loaded_without_torch():
    code = (
        "import sys; from handson.training.data import *; enlarge(load_arrays('digits')[0].images[:2], 16);"
        " sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_data_loader_gets_whole_batches_with_their_labels():
    train, _ = load("digits")
    subset = torch.utils.data.Subset(train, range(100, 164))
    batches = list(torch.utils.data.DataLoader(subset, batch_size=48))
    assert [len(labels) for _, labels in batches] == [48, 16]
    assert torch.equal(torch.cat([images for images, _ in batches]), train.images[100:164])
    assert torch.equal(torch.cat([labels for _, labels in batches]), train.labels[100:164])
    assert train[7][1] == train.labels[7] and torch.equal(train[7][0], train.images[7])


@pytest.mark.parametrize("shape", [(5, 1, 8, 8), (5, 3, 32, 32), (2, 1, 6, 9)])
@pytest.mark.parametrize("size", [1, 8, 31, 64])
def test_enlarging_is_bilinear(shape, size):
    images = torch.rand(shape, dtype=torch.float64)
    expected = torch.nn.functional.interpolate(images, size=(size, size), mode="bilinear", align_corners=False)
    for enlarged in (enlarge(images, size), torch.from_numpy(enlarge(images.numpy(), size))):
        assert enlarged.shape == (shape[0], 3, size, size)
        torch.testing.assert_close(enlarged, expected.expand(-1, 3, -1, -1), rtol=1e-12, atol=1e-12)


def test_a_file_of_ones_own_is_loaded_by_its_path(tmp_path):
    train, test = load(saved(tmp_path / "pets.npz"))
    assert (train.name, train.path, train.classes) == ("pets", tmp_path / "pets.npz", ("cat", "dog"))
    assert torch.equal((train.images * 255).round(), torch.from_numpy(tiny()["train_images"]).float())
    assert train.labels.tolist() == [0, 1, 0, 1, 0, 1] and test.labels.tolist() == [1, 0]


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(DataError) as error:
        load_arrays("mnist")
    assert "'mnist'" in sentence(error) and "cifar10_256px_5p, digits" in sentence(error)


def test_a_set_that_was_not_prepared_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("HANDSON_DATA", str(tmp_path))
    with pytest.raises(DataError) as error:
        load("cifar10_256px_5p")
    assert str(tmp_path / "cifar10_256px_5p.npz") in sentence(error)
    assert "python -m handson prepare cifar10_256px_5p" in sentence(error)


@pytest.fixture
def own_catalog(tmp_path, monkeypatch):
    """A data folder whose datasets.toml knows one sound set, "tiny"."""
    path = saved(tmp_path / "tiny.npz")
    sha256 = data.hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "datasets.toml").write_text(CATALOG.format(name="tiny", size=path.stat().st_size, sha256=sha256))
    monkeypatch.setenv("HANDSON_DATA", str(tmp_path))
    return tmp_path


def test_a_site_adds_data_sets_to_those_of_the_course(own_catalog):
    assert load_arrays("tiny")[0].name == "Tiny"
    assert len(load_arrays("digits")[0]) == 1500


def test_a_file_that_differs_from_its_checksum_is_named(own_catalog):
    saved(own_catalog / "tiny.npz", train_labels=numpy.ones(6, "uint8"))  # sound, of the same size, but another
    with pytest.raises(DataError, match="tiny.npz was altered"):
        load_arrays("tiny")


def test_one_altered_byte_of_a_file_without_checksum_is_noticed(tmp_path):
    path = saved(tmp_path / "pets.npz")
    content = bytearray(path.read_bytes())
    content[content.find(tiny()["train_images"].tobytes()) + 50] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="pets.npz is truncated, altered"):
        load_arrays(path)


def test_a_pickle_is_never_loaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return Path.touch, (tmp_path / "exploded",)

    path = tmp_path / "bomb.npz"
    numpy.savez(path, **tiny(classes=numpy.array([Bomb(), Bomb()], dtype=object)), allow_pickle=True)
    with pytest.raises(DataError):
        load_arrays(path)
    assert not (tmp_path / "exploded").exists()
