"""Images that stay in files: every sample once an epoch over all workers, restarts with the next sample, flat memory,
clear sentences."""

import sys

import numpy
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from waiting import run_to_end

from handson.pytorch.streams import ImageFiles, Partition
from handson.training import data, map_files
from handson.training.data import DataError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return map_files.write("digits", tmp_path_factory.mktemp("data") / "digits_files", say=lambda line: None)


@pytest.mark.thorough
def test_files_hold_the_images_and_labels_of_the_data_set(folder):
    for part, name in zip(data.load("digits"), ("train", "test")):
        images, labels = ImageFiles(folder / f"{name}.txt", classes=10).batch(range(len(part)))
        assert torch.equal(labels, part.labels)
        assert (images - part.images).abs().max() <= 0.501 / 255


def test_colours_come_as_three_channels(tmp_path):
    Image.fromarray(numpy.arange(12, dtype="uint8").reshape(2, 2, 3)).save(tmp_path / "a.png")
    (tmp_path / "map.txt").write_text("a.png\t0\n")
    image, _ = ImageFiles(tmp_path / "map.txt")[0]
    assert (255 * image).tolist() == [[[0, 3], [6, 9]], [[1, 4], [7, 10]], [[2, 5], [8, 11]]]


@pytest.mark.parametrize("workers", range(1, 6))
@pytest.mark.parametrize("samples", [23, 60])
def test_every_sample_is_used_once_an_epoch_by_any_number_of_workers(workers, samples):
    parts = [Partition(samples, 10, workers, worker, seed=3) for worker in range(workers)]
    epochs = [[list(part) for part in parts] for _ in range(2)]
    for epoch in epochs:
        assert sorted(number for of_worker in epoch for batch in of_worker for number in batch) == list(range(samples))
        assert len({len(of_worker) for of_worker in epoch}) == 1
        for of_step in zip(*epoch):
            assert max(map(len, of_step)) - min(map(len, of_step)) <= 1 <= min(map(len, of_step))
    assert epochs[0] != epochs[1]


def test_the_totals_of_the_steps_are_what_all_workers_take_together():
    parts = [Partition(23, 10, 3, worker) for worker in range(3)]
    for of_step in zip(*parts):
        assert [part.total for part in parts] == [sum(map(len, of_step))] * 3


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 3), (3, 1)])
def test_a_restart_in_mid_epoch_goes_on_with_the_next_sample(before, after):
    """Also with another number of workers."""
    first = [Partition(50, 12, before, worker, seed=1) for worker in range(before)]
    loaders = [iter(DataLoader(torch.arange(50), batch_sampler=part)) for part in first]
    taken = [number for _ in range(2) for loader in loaders for number in next(loader).tolist()]
    assert 20 <= len(taken) < 50
    second = [Partition(50, 12, after, worker, seed=1) for worker in range(after)]
    for part in second:
        part.load_state_dict(first[0].state_dict())
    rest = [number for part in second for batch in part for number in batch]
    assert sorted(taken + rest) == list(range(50))
    whole = Partition(50, 12, seed=1)
    assert sorted(taken) == sorted(number for batch in list(whole)[:2] for number in batch)
    assert [part.epoch for part in second] == [1] * after


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("", "map.txt is empty"),
        ("a.png 3\n", "map.txt, line 1: a line must be the path of an image, a tab and its label, not 'a.png 3"),
        ("a.png\t0\na.png\t10\n", "map.txt, line 2: the label is '10', but it must be a whole number from 0 to 9"),
        ("a.png\t0\na.png\tcat\n", "map.txt, line 2: the label is 'cat'"),
        ("a.png\t-1\n", "map.txt, line 1: the label is '-1'"),
        ("gone.png\t1\n", r"gone.png \(map.txt, line 1\) does not exist: restore it, or remove its line"),
        ("a.png\t0\ngone.png\t1\n", r"gone.png \(map.txt, line 2\) does not exist"),
        ("a.png\t0\nmap.txt\t1\n", r"map.txt \(map.txt, line 2\) cannot be read as an image"),
        ("a.png\t0\nlarge.png\t1\n", r"line 2\) has 9 x 9 pixels, but the first image has 8 x 8 pixels"),
        ("a.png\t0\ncut.png\t1\n", r"cut.png \(map.txt, line 2\) is damaged"),
    ],
)
def test_what_is_wrong_with_a_map_file_is_said_with_file_and_line(tmp_path, lines, sentence):
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    Image.new("L", (9, 9)).save(tmp_path / "large.png")
    noise = numpy.random.default_rng(0).integers(0, 256, (8, 8), dtype="uint8")
    Image.fromarray(noise).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:70])
    (tmp_path / "map.txt").write_text(lines)
    with pytest.raises(DataError, match=sentence):
        files = ImageFiles(tmp_path / "map.txt", classes=10)
        files.batch(range(len(files)))


def test_no_map_file_is_said_with_the_command_that_writes_one(tmp_path):
    with pytest.raises(DataError, match="there is no map file .*python -m handson images"):
        ImageFiles(tmp_path / "none.txt")


EPOCH = """
import resource, sys
from torch.utils.data import DataLoader
from handson.pytorch.streams import ImageFiles, Partition
for path in sys.argv[1:]:
    files = ImageFiles(path)
    for images, labels in DataLoader(files, batch_sampler=Partition(len(files), 50)):
        pass
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.thorough
def test_memory_stays_flat_with_ten_times_the_data(tmp_path):
    """400 images of 64 x 64 pixels take 6 MB as float32, and 4,000 take 63 MB."""
    Image.new("L", (64, 64)).save(tmp_path / "a.png")
    for name, count in (("one", 400), ("ten", 4000)):
        (tmp_path / f"{name}.txt").write_text("a.png\t0\n" * count)
    child = run_to_end([sys.executable, "-c", EPOCH, tmp_path / "one.txt", tmp_path / "ten.txt"])
    one, ten = map(int, child.stdout.split())  # KiB
    assert ten - one < 6 * 1024, child.stderr
