"""Imports the packages of the second environment once, so that a forked rank starts without delay. TensorFlow computes
nothing here: its threads would not be there in a forked process."""

import handson.accelerate  # noqa: F401
import handson.lightning.reports  # noqa: F401
import handson.tensorflow.model  # noqa: F401
import handson.tensorflow.reports  # noqa: F401

import accelerate  # noqa: F401, E402  (which handson.frameworks makes importable)
from lightning.pytorch.trainer.connectors.signal_connector import _SignalConnector  # noqa: E402


# else Lightning takes away the handler that tells the sandbox where a rank waits
_SignalConnector.register_signal_handlers = lambda self: None
