"""A library that takes long to load, for tests of a box that is not yet ready."""

import time

time.sleep(60)
