"""Import this package before TensorFlow and Keras, in the scripts of the unit 07_frameworks. It imports them from the
second environment, without the messages that they print. Its modules contain devices, model, tables and rendezvous.
Raises NoFrameworks."""

import logging
import os
import warnings

from handson import frameworks

frameworks.add("tensorflow", "keras")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow's library is loaded
os.environ["KERAS_BACKEND"] = "tensorflow"
logging.getLogger("absl").setLevel(logging.ERROR)

with frameworks.silently():  # TensorFlow prints a greeting before it can be turned off
    import tensorflow as tf

tf.get_logger().setLevel(logging.ERROR)
warnings.filterwarnings("ignore", "`shuffle=True` was passed", UserWarning)  # `fit` prints it for every tf.data set

# otherwise the end of an epoch often waits for a thread that tunes tf.data, for up to the duration of the epoch
UNTUNED = tf.data.Options()
UNTUNED.autotune.enabled = False
