"""What comes out of a box is data: what `pack` made is read back, and anything else is refused."""

import json
import random
import socket
import struct

import numpy
import pytest

from grader.sandbox import protocol

THING = {
    "numbers": [1, 2.5, None, True],
    "array": numpy.arange(6, dtype="float32").reshape(2, 3),
    "more": [{"empty": numpy.zeros((0, 4))}],
}


def message(text, arrays=b""):
    return struct.pack("!II", len(text), len(arrays)) + text + arrays


def same(one, other):
    if isinstance(one, numpy.ndarray):
        return (
            isinstance(other, numpy.ndarray)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and (one == other).all()
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def test_what_is_packed_comes_back():
    assert same(protocol.unpack(protocol.pack(THING)), THING)


def test_numbers_of_numpy_are_plain_numbers_afterwards():
    assert protocol.unpack(protocol.pack([numpy.float64(0.5), numpy.int64(3), numpy.bool_(True)])) == [0.5, 3, True]


@pytest.mark.parametrize("kind", ["object", "<U3", "datetime64[s]", "complex128"])
def test_arrays_of_other_kinds_than_numbers_are_not_sent(kind):
    with pytest.raises(protocol.BadMessage, match="cannot be sent"):
        protocol.pack(numpy.zeros(2, dtype=kind))


@pytest.mark.parametrize(
    "array",
    [
        ["object", [1]],
        ["float64", [-1]],
        ["float64", [2]],  # more than there is
        ["float64", [10**30]],
        ["uint8", [0, 10**30]],
        ["uint8", [0] * 100],
        ["uint8", [0, 1, 1, 1, 1, 1]],
        ["uint8", [0, 10**8]],  # no numbers: but to look for its largest one in each column would take 1.6 GB
        ["uint8", [10**4, 10**4, 0]],
        ["float64", "abc"],
        ["float64", None],
        [["float64"], [1]],
        ["float64"],
        5,
    ],
)
def test_arrays_that_can_not_be_are_refused(array):
    with pytest.raises(protocol.BadMessage):
        protocol.unpack(message(json.dumps({"__array__": array}).encode(), bytes(8)))


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[" * 100_000, b'"\xff"', b"9" * 10_000, b"cos\nsystem\n(S'true'\ntR."],
    ids=["empty", "open", "deep", "bytes", "long", "pickle"],
)
def test_texts_that_are_no_json_are_refused(text):
    with pytest.raises(protocol.BadMessage):
        protocol.unpack(message(text))


def test_altered_messages_are_read_or_refused_and_nothing_else():
    chance, whole = random.Random(0), protocol.pack(THING)
    for _ in range(3000):
        altered = bytearray(whole[: chance.randrange(len(whole) + 1)] if chance.random() < 0.2 else whole)
        for _ in range(chance.randrange(4)):
            if altered:
                altered[chance.randrange(len(altered))] = chance.randrange(256)
        try:
            protocol.unpack(bytes(altered))
        except protocol.BadMessage:
            pass


def test_a_message_that_would_be_too_long_is_refused_by_its_first_bytes():
    assert not protocol.whole(b"\0\0\0")
    with pytest.raises(protocol.BadMessage, match="4,294,967,303 bytes"):
        protocol.whole(b"\xff\xff\xff\xff\0\0\0\0")


def test_a_message_in_pieces_is_put_together_and_the_end_is_none():
    one, other = socket.socketpair()
    with other:
        with one:
            data = protocol.pack([1]) + protocol.pack([2])
            for part in (data[:3], data[3:11], data[11:]):
                one.sendall(part)
            assert (protocol.receive(other), protocol.receive(other)) == ([1], [2])
            one.sendall(data[:10])
        assert protocol.receive(other) is None
