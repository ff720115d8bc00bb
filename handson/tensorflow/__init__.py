"""What the TensorFlow scripts of the unit 07_frameworks import before TensorFlow and Keras, which are in the second
environment: they are imported here for the first time, without the messages that they print. Devices, model, tables and
meetings are in the modules here. Raises NoFrameworks.
"""

import logging
import os
import warnings

from handson import frameworks

frameworks.add("tensorflow", "keras")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow's library is loaded
os.environ["KERAS_BACKEND"] = "tensorflow"
logging.getLogger("absl").setLevel(logging.ERROR)

with frameworks.silently():  # it greets before one can tell it not to
    import tensorflow as tf

tf.get_logger().setLevel(logging.ERROR)
warnings.filterwarnings("ignore", "`shuffle=True` was passed", UserWarning)  # `fit` says it of every tf.data set

# otherwise the end of an epoch often waits, for up to the time the epoch took, until a thread that tunes tf.data wakes
# up
UNTUNED = tf.data.Options()
UNTUNED.autotune.enabled = False
