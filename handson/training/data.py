"""The data sets of the course: images with labels, found by name or path and checked before use.

Training scripts call `load` (PyTorch) or `load_arrays` (NumPy, for Chainer) once; only `load` imports torch. They call
`enlarge` for every batch on the worker's device, so that only small images are stored, read and sent. The names are
those of datasets/datasets.toml. A site's own datasets.toml in the folder HANDSON_DATA adds names, or replaces entries,
for example with a mirror.
"""

import functools
import hashlib
import io
import os
import sys
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from handson.errors import OneSentence
from handson.files import COURSE
from handson.training import progress

EMBEDDED = COURSE / "datasets"


class DataError(OneSentence, ValueError):
    """A data set is wrong or missing; all ranks have the same problem."""

    on_all_ranks = True


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """Images and labels as a sequence of pairs, which DataLoader and Chainer's iterators read alike.

    images: float32 in [0, 1], (samples, channels, height, width); labels: int64, (samples,); both are torch tensors or
    both NumPy arrays. name is for people ("CIFAR10"), path is the file, classes are the labels' names.
    """

    images: object
    labels: object
    name: str
    path: Path
    classes: tuple

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]

    def __getitems__(self, indices):  # fetches a DataLoader's whole batch at once
        return list(zip(self.images[indices], self.labels[indices]))


def load(dataset):
    """Return the training and the test set of a name or a path, as ImageDatasets of torch tensors. Raises DataError."""
    import torch

    def tensors(part):
        return replace(part, images=torch.from_numpy(part.images), labels=torch.from_numpy(part.labels))

    train, test = load_arrays(dataset)
    return tensors(train), tensors(test)


def load_arrays(dataset):
    """Return the training and the test set of a name or a path, as ImageDatasets of NumPy arrays. Raises DataError."""
    path, entry = find(dataset)
    arrays = read(path, entry)
    name = entry.get("title", path.stem)
    classes = tuple(str(label) for label in arrays["classes"])

    def part(which):
        images = arrays[f"{which}_images"].astype("float32") / arrays["maximum"].astype("float32")
        return ImageDataset(images, arrays[f"{which}_labels"].astype("int64"), name, path, classes)

    return part("train"), part("test")


def enlarge(images, size):
    """Return images (N, 1 or 3, height, width) as (N, 3, size, size), of the same type and on the same device. They may
    be arrays of torch, NumPy or CuPy.

    The interpolation is bilinear, like torch's interpolate without align_corners. It is linear in rows and in columns,
    so two products with small matrices compute it, much faster than interpolate on a CPU. Raises DataError.
    """
    progress.progress()  # batches of an evaluation end no step of an optimizer, but also show progress
    if size < 1:
        raise DataError(f"images cannot be enlarged to {size} pixels: the size must be at least 1")
    height, width = images.shape[2:]
    if getattr(images, "is_cuda", False):
        rows, columns = (_on_gpu(length, size, images.device, images.dtype) for length in (height, width))
    else:
        rows, columns = (_like(images, stretching(length, size)) for length in (height, width))
    wide = images @ columns.T
    if images.shape[1] == 1:
        wide = wide[:, [0, 0, 0]]
    return rows @ wide


@functools.cache
def stretching(length, size):
    """Return the matrix (size, length), float64, that stretches `length` pixels to `size`: each row weights the two
    nearest pixels."""
    import numpy

    centres = ((numpy.arange(size) + 0.5) * length / size - 0.5).clip(0, length - 1)
    return numpy.maximum(0, 1 - abs(centres[:, None] - numpy.arange(length)))


@functools.cache
def _on_gpu(length, size, device, dtype):
    """Return the same on a GPU. It is copied there only once, because at each copy the host waits until the GPU has
    finished all queued work."""
    import torch

    return torch.tensor(stretching(length, size), device=device, dtype=dtype)


def averaging(length, parts):
    """Return the matrix (parts, length), float64, that averages each of `parts` regions; they overlap if `length` is
    not a multiple of `parts`."""
    import numpy

    matrix = numpy.zeros((parts, length))
    for part in range(parts):
        begin, end = part * length // parts, -(-(part + 1) * length // parts)
        matrix[part, begin:end] = 1 / (end - begin)
    return matrix


def _like(images, matrix):
    """Return the NumPy `matrix` as an array of the kind, type and device of `images`."""
    if hasattr(images, "new_tensor"):
        return images.new_tensor(matrix)
    library = sys.modules[type(images).__module__.partition(".")[0]]  # CuPy's arrays have no __array_namespace__
    return library.asarray(matrix, dtype=images.dtype)


def data_folder():
    """Return the folder of downloads and prepared files: HANDSON_DATA, or datasets/."""
    return Path(os.environ.get("HANDSON_DATA") or EMBEDDED).expanduser()


def catalog():
    """Return the known data sets: name -> entry of datasets.toml, with the folder of that file. Raises DataError."""
    entries = {}
    for folder in dict.fromkeys([EMBEDDED, data_folder()]):
        path = folder / "datasets.toml"
        try:
            for name, entry in tomllib.loads(path.read_text("utf-8")).items():
                if "archive" in entry and not {"url", "size", "sha256"} <= entry["archive"].keys():
                    raise ValueError(f"{name}.archive needs url, size and sha256")
                entries[name] = {"folder": folder} | entry
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise DataError(f"{path} cannot be read ({error}): correct or restore it") from None
    return entries


def find(dataset):
    """Return the file of a name or a path, and its entry in the catalog ({} for a user's own file). Raises
    DataError."""
    dataset, entries = str(dataset), catalog()
    if dataset in entries:
        entry = entries[dataset]
        return (data_folder() if "archive" in entry else entry["folder"]) / f"{dataset}.npz", entry
    if dataset.endswith(".npz") or os.sep in dataset:
        return Path(dataset).expanduser(), {}
    known = ", ".join(sorted(entries)) or "(none)"
    raise DataError(
        f"there is no data set named {dataset!r}: give the path of an .npz file or one of these names: {known}"
    )


def read(path, entry):
    """Return the checked arrays of the .npz file `path`, whose entry in the catalog is `entry`. Raises DataError.

    Arrays: train_images and test_images, uint8 or float, (samples, 1 or 3 channels, height, width); train_labels and
    test_labels, integers from 0; classes, the labels' names; maximum, the pixel value of full brightness.
    """
    import numpy

    if "archive" in entry:
        cure = f"run `python -m handson prepare {path.stem}`"
    else:
        cure = "restore it" if entry else "give another file"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"there is no file {path}: {cure}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): {cure}") from None
    if len(content) < entry.get("size", 0):
        raise DataError(f"{path} is truncated ({len(content):,} bytes instead of {entry['size']:,}): {cure}")
    if "sha256" in entry and hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise DataError(f"{path} was altered (its SHA-256 is not the one in datasets.toml): {cure}")
    try:
        with numpy.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}  # reading an array verifies its CRC
    except Exception as error:  # a file of another type can fail in any way
        raise DataError(
            f"{path} is truncated, altered or not an .npz file ({type(error).__name__}: {error}): {cure}"
        ) from None
    if problem := _what_is_wrong(path, arrays, entry.get("archive")):
        raise DataError(f"{problem}: {cure}")
    return arrays


def _what_is_wrong(path, arrays, archive):
    """Return why the `arrays` in the file `path` are not a data set, as a sentence, or None if they are one."""
    names = ("train_images", "train_labels", "test_images", "test_labels", "classes", "maximum")
    if missing := [name for name in names if name not in arrays]:
        return f"{path} lacks {', '.join(missing)}"
    if archive and str(arrays.get("archive_sha256")) != archive["sha256"]:
        return f"{path} was made from an archive other than the one in datasets.toml"
    if arrays["maximum"].shape != () or arrays["maximum"].dtype.kind not in "uif" or not arrays["maximum"] > 0:
        return f"{path} has a maximum that is not one positive number"
    if arrays["classes"].ndim != 1 or arrays["train_images"].shape[1:] != arrays["test_images"].shape[1:]:
        return f"{path} has classes that are not a list, or training and test images of different shapes"
    for part in ("train", "test"):
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        if images.ndim != 4 or images.size == 0 or images.shape[1] not in (1, 3) or images.dtype.kind not in "uf":
            return (
                f"{path} has {part}_images that are not uint8 or float of shape (samples, 1 or 3 channels, height,"
                " width)"
            )
        if not (0 <= images.min() and images.max() <= arrays["maximum"]):
            return f"{path} has {part}_images with pixels outside 0 to {arrays['maximum']}"
        if labels.shape != images.shape[:1] or labels.dtype.kind not in "ui":
            return f"{path} has {part}_labels that are not one whole number for each of the {len(images)} images"
        if labels.min() < 0 or labels.max() >= len(arrays["classes"]):
            return f"{path} has {part}_labels outside the {len(arrays['classes'])} classes"
    return None
