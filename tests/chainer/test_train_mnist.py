"""ChainerMN's first example: it learns with any number of ranks, and its four steps are timed and drawn."""

import re
import xml.etree.ElementTree as ElementTree

import handson.chainer  # noqa: F401
from handson.chainer import timed_mnist

import numpy
import pytest
from PIL import Image

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_it_learns_and_draws_its_steps(ranks, run, tmp_path):
    ended = run("mnist", "-e", "3", "-u", "100", "-o", tmp_path / "out", ranks=ranks)
    assert (ended.status, ended.errors) == (0, "")
    assert f"Num process (COMM_WORLD): {ranks}\n" in ended.out
    assert "Using naive communicator\nNum unit: 100\n" in ended.out
    rows = re.findall(r"^([123])((?: +[\d.]+){5}) *$", ended.out, re.MULTILINE)
    assert [row[0] for row in rows] == ["1", "2", "3"] and float(rows[-1][1].split()[3]) > 0.5, (
        "accuracy on the test set"
    )
    assert re.search(r"^Throughput: [\d.]+ \[images/sec\.\] \(4500 / [\d.]+\)$", ended.out, re.MULTILINE)
    updates = -(-3 * -(-1500 // ranks) // 32)
    line = (
        rf"Mean time of a step \({ranks} ranks?, {updates - 1} steps\): forward [\d.]+ ms, backward [\d.]+ ms,"
        r" all-reduce [\d.]+ ms, optimize [\d.]+ ms"
    )
    assert re.search(line, ended.out), ended.out
    assert Image.open(tmp_path / "out/steps.png").width > 1000
    assert re.search(line, (tmp_path / "out/steps.svg").read_text()), "a text for people who cannot see the figure"


def test_what_cannot_work_is_one_sentence(run, tmp_path):
    (tmp_path / "file").touch()
    for options, sentence in (
        (["-g", "0"], "-g names 1 GPU, but there are 2 ranks"),
        (["-o", tmp_path / "file"], "--out: "),
    ):
        ended = run("mnist", *options, ranks=2)
        assert ended.status == 2 and sentence in ended.errors and "Traceback" not in ended.errors


@pytest.mark.parametrize("ranks, updates", [(1, 1), (4, 58), (2, 1234)])
def test_the_figure_has_labels_and_a_description(ranks, updates, tmp_path):
    milliseconds = numpy.random.RandomState(0).rand(ranks, updates, 4) * 10
    timed_mnist.draw(milliseconds, tmp_path)
    tree = ElementTree.parse(tmp_path / "steps.svg")
    text = " ".join(tree.getroot().itertext())
    assert "Mean time of a step" in text and f"({ranks} rank" in text
    hatches = [element for element in tree.iter() if element.tag.endswith("pattern")]
    assert len(hatches) >= 3, "told apart in black and white"
    assert (
        Image.open(tmp_path / "steps.png").info["Description"].startswith("Time of the four parts of a training step")
    )
