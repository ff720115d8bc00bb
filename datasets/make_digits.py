"""Make digits.npz from scikit-learn's copy of the UCI digits: python datasets/make_digits.py digits.csv.gz
[digits.npz].

Each of the 1,797 rows is one image, 64 pixels from 0 to 16 and the digit; the first 1,500 become the training set. The
arrays are the same wherever this runs; the bytes of the file, whose SHA-256 datasets.toml holds, depend on the zlib
that compresses them.
"""

import sys

import numpy

source, target = [*sys.argv[1:], "digits.npz"][:2]
rows = numpy.loadtxt(source, delimiter=",").astype("uint8")
images, labels = rows[:, :64].reshape(-1, 1, 8, 8), rows[:, 64]
numpy.savez_compressed(
    target,
    train_images=images[:1500],
    train_labels=labels[:1500],
    test_images=images[1500:],
    test_labels=labels[1500:],
    classes=[str(digit) for digit in range(10)],
    maximum=numpy.uint8(16),
)
