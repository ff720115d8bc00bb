"""Minibatches of images that are read from files during training. Every worker reads its partition of each
minibatch."""

from dataclasses import dataclass

import torch

from handson.errors import TrackError
from handson.pytorch.streams import ImageFiles, Partition, check

INFINITELY_REPEAT = 2**63 - 1
FIELDS = "image", "label"


@dataclass(frozen=True)
class StreamDef:
    """The field of the map file that a stream reads: "image", or "label" with the number of classes as its shape."""

    field: str
    shape: int | None = None
    transforms: tuple = ()


class StreamDefs:
    """Named streams: StreamDefs(features=StreamDef(field="image"), labels=StreamDef(field="label", shape=10))."""

    def __init__(self, **streams):
        vars(self).update(streams)


@dataclass(frozen=True)
class StreamInformation:
    """A stream of a MinibatchSource, the key of its data in a minibatch."""

    name: str
    definition: StreamDef


class ImageDeserializer:
    """A reader for the images of a map file, which has a line per image with its path, a tab and its label. Raises
    DataError, TrackError."""

    def __init__(self, filename, streams):
        self.streams = vars(streams)
        for name, stream in self.streams.items():
            if getattr(stream, "field", None) not in FIELDS:
                raise TrackError(
                    f"the stream {name!r} should be a StreamDef with the field 'image' or 'label', not {stream!r:.60}"
                )
            if stream.transforms:
                raise TrackError(
                    f"the stream {name!r} has transforms, which handson.cntk does not support: write images of the"
                    " right size into the files"
                )
            if stream.field == "label" and not isinstance(stream.shape, int):
                raise TrackError(f"the stream {name!r} needs the number of classes: StreamDef(field='label', shape=10)")
        classes = [stream.shape for stream in self.streams.values() if stream.field == "label"]
        self.files = ImageFiles(filename, min(classes, default=None))

    def read(self, numbers):
        """Return {name of a stream: its data}: images (N, channels, height, width) from 0 to 255, labels as one-hot
        vectors (N, classes)."""
        images, labels = self.files.batch(numbers)
        return {
            name: 255 * images if stream.field == "image" else torch.nn.functional.one_hot(labels, stream.shape).float()
            for name, stream in self.streams.items()
        }


class MinibatchSource:
    """A stream that repeats the samples of a deserializer up to `max_samples` or `max_sweeps`. With `randomize`, each
    sweep has a new random order. The order is the same on all workers."""

    def __init__(
        self,
        deserializers,
        max_samples=INFINITELY_REPEAT,
        max_sweeps=INFINITELY_REPEAT,
        randomization_seed=0,
        randomize=True,
        **others,
    ):
        if others:
            raise TrackError(
                f"MinibatchSource has no option {next(iter(others))!r} in handson.cntk; it has max_samples, max_sweeps,"
                " randomize, randomization_seed"
            )
        [self.deserializer] = deserializers if isinstance(deserializers, (list, tuple)) else [deserializers]
        samples = len(self.deserializer.files)
        self.order = Partition(samples, samples, seed=randomization_seed, shuffle=randomize)
        self.streams = StreamDefs(
            **{name: StreamInformation(name, stream) for name, stream in self.deserializer.streams.items()}
        )
        self.limit = max_samples if max_sweeps == INFINITELY_REPEAT else min(max_samples, max_sweeps * samples)
        self.given = 0

    @property
    def is_infinite(self):
        return self.limit == INFINITELY_REPEAT

    def stream_info(self, name):
        """Return the stream with this name."""
        return vars(self.streams)[name]

    def next_minibatch(self, minibatch_size_in_samples, input_map=None, num_data_partitions=1, partition_index=0):
        """Return {stream: this worker's part of the next `minibatch_size_in_samples` samples}, or an empty dictionary
        when the source is exhausted.

        A minibatch ends with its sweep, and a worker's part can be empty. input_map: {input: stream}; its inputs are
        then the keys of the result. Raises TrackError for a partition that does not exist.
        """
        if minibatch_size_in_samples < 1:
            raise TrackError(f"a minibatch needs at least 1 sample, not {minibatch_size_in_samples}")
        num_data_partitions, partition_index = num_data_partitions or 1, partition_index or 0
        check(num_data_partitions, partition_index)
        count = min(minibatch_size_in_samples, self.limit - self.given)
        if count <= 0:
            return {}
        numbers = self.order.take(count, num_data_partitions, partition_index)
        self.given += self.order.total
        found = self.deserializer.read(numbers)
        if input_map is None:
            return {stream: found[name] for name, stream in vars(self.streams).items()}
        return {given: found[stream.name] for given, stream in input_map.items()}

    def get_checkpoint_state(self):
        """Return the position of the source: numbers that are equal on all workers."""
        return self.order.state_dict() | {"given": self.given}

    def restore_from_checkpoint(self, checkpoint):
        """Resume with the sample after the last one that was returned. Raises TrackError."""
        self.order.load_state_dict(checkpoint)
        self.given = checkpoint["given"]
