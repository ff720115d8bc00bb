"""Images in separate files, which are read when they are needed: a map file has a line per image with its path, a tab
and its label.

CNTK's ImageDeserializer reads such files. Here, a relative path starts at the folder of the map file. `write` creates
the files of a data set of the course (``python -m handson images``); handson.pytorch.streams reads them during
training.
"""

import array
import os
import shutil
from pathlib import Path

from handson.files import written_aside
from handson.language import speak
from handson.training import data
from handson.training.data import DataError

FORMATS = ("PNG", "JPEG", "BMP", "PPM")  # the formats that Pillow may read: they contain no programs
LONGEST = 4096  # bytes of a line
SUFFIX = "_files"  # ends the name of the folder with a data set's images


def folder_of(dataset):
    """Return the folder for the images of a data set."""
    return data.data_folder() / f"{dataset}{SUFFIX}"


def write(dataset, folder=None, say=speak):
    """Write the images of a data set as PNG files, with two map files, folder/train.txt and folder/test.txt. Return the
    folder.

    The folder gets its name when all files are written; an existing folder is kept. Raises DataError.
    """
    from PIL import Image

    folder = folder_of(dataset) if folder is None else Path(folder)
    if (folder / "train.txt").exists() and (folder / "test.txt").exists():
        say(f"the images are ready: {folder}")
        return folder
    parts = dict(zip(("train", "test"), data.load_arrays(dataset)))
    aside = folder.with_name(f"{folder.name}.{os.urandom(4).hex()}.part")
    if folder.exists():
        raise DataError(
            f"{folder} already exists, but has no images of the course: name another folder with -o, or remove it"
        )
    try:
        for name, part in parts.items():
            (aside / name).mkdir(parents=True)
            with written_aside(aside / f"{name}.txt", durable=False) as file:
                for number, (image, label) in enumerate(part):
                    path = Path(name, f"{number:05}.png")
                    pixels = (255 * image).round().astype("uint8")
                    Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).save(aside / path)
                    file.write(f"{path}\t{label}\n".encode())
        aside.rename(folder)
    except OSError as error:
        raise DataError(
            f"the images cannot be written to {folder} ({error.strerror or error}): free some disk space, or name"
            " another folder with -o"
        ) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    say(f"{sum(map(len, parts.values())):,} images, train.txt and test.txt: {folder}")
    return folder


class MapFile:
    """The images of a map file: a sequence of (pixels, label), uint8 (channels, height, width) and int. An image is
    read when it is indexed.

    An image needs 16 bytes of memory, for the position of its line and for its label. All images have the size and the
    colours of the first image. classes: the number of classes, or None if a label may be any whole number. Raises
    DataError for a wrong line, and later for a damaged image.
    """

    def __init__(self, path, classes=None):
        self.path, self.lines, self.labels = Path(path), array.array("Q"), array.array("Q")
        try:
            self.file = open(self.path, "rb")
        except OSError as error:
            raise DataError(
                f"there is no map file {path} ({error.strerror}): `python -m handson images digits` writes a map"
                " file for a data set of the course"
            ) from None
        end = 0
        while line := self.file.readline(LONGEST):
            self.lines.append(end)
            self.labels.append(self._label(line, classes))
            end += len(line)
        if not self.lines:
            raise DataError(f"{path} is empty: a map file has one line per image, with its path, a tab and its label")
        first = self._open(0)
        self.mode = "L" if first.mode == "L" else "RGB"
        self.size = first.size  # width, height
        self.shape = (len(self.mode), self.size[1], self.size[0])
        first.close()

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, number):
        """Return (pixels, label) of an image. Raises DataError."""
        import numpy

        try:
            with self._open(number) as image:
                if image.size != self.size:
                    raise DataError(
                        f"{self._where(number)} has {_pixels(image.size)}, but the first image has"
                        f" {_pixels(self.size)}: all images need the same size"
                    )
                pixels = numpy.asarray(image.convert(self.mode))
        except DataError:
            raise
        except Exception as error:  # a damaged file can fail in any way
            raise DataError(f"{self._where(number)} is damaged ({error}): restore it, or remove its line") from None
        return numpy.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1).transpose(2, 0, 1)), self.labels[number]

    def _label(self, line, classes):
        text, where = line.decode(errors="replace").rstrip("\r\n"), f"{self.path}, line {len(self.lines)}"
        words = text.split("\t")
        if len(words) != 2 or not words[0]:
            raise DataError(f"{where}: a line must be the path of an image, a tab and its label, not {text[:60]!r}")
        label, below = words[1], 2**63 if classes is None else classes
        if not (label.isascii() and label.isdigit() and len(label) < 20 and int(label) < below):
            allowed = "a whole number" if classes is None else f"a whole number from 0 to {classes - 1}"
            raise DataError(f"{where}: the label is {label[:20]!r}, but it must be {allowed}")
        return int(label)

    def _file_of(self, number):
        line = os.pread(self.file.fileno(), LONGEST, self.lines[number]).partition(b"\t")[0]
        return self.path.parent / os.fsdecode(line)

    def _where(self, number):
        return f"the image {self._file_of(number)} ({self.path.name}, line {number + 1})"

    def _open(self, number):
        from PIL import Image

        try:
            return Image.open(self._file_of(number), formats=FORMATS)
        except FileNotFoundError:
            raise DataError(f"{self._where(number)} does not exist: restore it, or remove its line") from None
        except Exception as error:
            raise DataError(
                f"{self._where(number)} cannot be read as an image ({error}): restore it, or remove its line"
            ) from None


def _pixels(size):
    return f"{size[0]} x {size[1]} pixels"
