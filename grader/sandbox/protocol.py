"""Messages between the processes of a sandbox: JSON, followed by the raw bytes of NumPy arrays. Reading a message never
executes code."""

import json
import math
import struct

import numpy

LENGTHS = struct.Struct("!II")  # bytes of the JSON, bytes of all arrays
LIMIT = 64 << 20  # bytes
KINDS = {"float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"}
ARRAY = "__array__"
MOST = 5  # dimensions of an array
# levels of nested lists and dictionaries: deeper ones could overflow the smaller stack of another process
DEEPEST = 50


class BadMessage(ValueError):
    """The bytes received are not a message."""


def pack(thing):
    """Return `thing` as bytes: anything that JSON supports, with arrays anywhere in it. Raises BadMessage,
    TypeError."""
    arrays = []

    def plain(value):
        if isinstance(value, numpy.ndarray):
            if value.dtype.name not in KINDS:
                raise BadMessage(f"arrays of {value.dtype} cannot be sent")
            arrays.append(numpy.ascontiguousarray(value).tobytes())
            return {ARRAY: [value.dtype.name, list(value.shape)]}
        if isinstance(value, numpy.generic):
            return value.item()
        raise TypeError(f"{type(value).__name__} can't be sent")

    text = json.dumps(thing, default=plain).encode()
    return LENGTHS.pack(len(text), sum(map(len, arrays))) + text + b"".join(arrays)


def unpack(data):
    """Return the thing that `pack` has converted to `data`. Raises BadMessage for any other bytes."""
    try:
        text_length, arrays_length = LENGTHS.unpack_from(data)
        if len(data) != LENGTHS.size + text_length + arrays_length:
            raise BadMessage("the lengths are wrong")
        position = LENGTHS.size + text_length

        def restore(value):
            nonlocal position
            if set(value) != {ARRAY}:
                return value
            kind, shape = value[ARRAY]
            if kind not in KINDS or not all(isinstance(length, int) and length >= 0 for length in shape):
                raise BadMessage("an array of an unknown kind")
            # an empty array also takes time and memory
            if len(shape) > MOST or math.prod(length or 1 for length in shape) > LIMIT:
                raise BadMessage("an array of too many dimensions, or too long ones")
            count = math.prod(shape)
            if position + count * numpy.dtype(kind).itemsize > len(data):
                raise BadMessage("an array is cut off")
            array = numpy.frombuffer(data, kind, count, position).reshape(shape)
            position += array.nbytes
            return array

        thing = json.loads(data[LENGTHS.size : LENGTHS.size + text_length], object_hook=restore)
        _check_depth(thing, DEEPEST)
        return thing
    except BadMessage:
        raise
    except (struct.error, ValueError, TypeError, OverflowError, RecursionError, KeyError) as error:
        raise BadMessage(f"it can't be read ({type(error).__name__})") from None


def _check_depth(thing, left):
    if isinstance(thing, (list, dict)):
        if not left:
            raise BadMessage("it is nested too deep")
        for value in thing.values() if isinstance(thing, dict) else thing:
            _check_depth(value, left - 1)


def whole(buffer, limit=LIMIT):
    """Return whether `buffer` contains a complete message. Raises BadMessage if the message would have more than
    `limit` bytes."""
    if len(buffer) < LENGTHS.size:
        return False
    length = LENGTHS.size + sum(LENGTHS.unpack_from(buffer))
    if length > limit:
        raise BadMessage(f"it has {length:,} bytes, more than {limit:,}")
    return len(buffer) >= length


def receive(connection):
    """Return the next message of a stream socket, or None at its end."""
    data = read(connection)
    return None if data is None else unpack(bytes(data))


def read(connection):
    """Return the bytes of the next message, or None at the end. The bytearray is the only copy, so the caller can erase
    it. Raises BadMessage."""
    lengths = _exactly(connection, LENGTHS.size)
    if lengths is None:
        return None
    whole(lengths)  # raises if the message is too long
    return _exactly(connection, sum(LENGTHS.unpack(lengths)), lengths)


def _exactly(connection, count, begin=b""):
    """Return `begin` and the next `count` bytes, or None if the stream ends before that."""
    data = bytearray(len(begin) + count)
    data[: len(begin)] = begin
    left = memoryview(data)[len(begin) :]
    while left:
        got = connection.recv_into(left)
        if not got:
            return None
        left = left[got:]
    return data
