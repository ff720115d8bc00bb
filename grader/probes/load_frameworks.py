"""Import the packages of the second environment once, so that a forked rank starts without delay. TensorFlow computes
nothing here, because its threads would be missing in a forked process."""

import handson.accelerate  # noqa: F401
import handson.lightning.reports  # noqa: F401
import handson.tensorflow.model  # noqa: F401
import handson.tensorflow.reports  # noqa: F401

import accelerate  # noqa: F401, E402  (which handson.frameworks makes importable)
from lightning.pytorch.trainer.connectors.signal_connector import _SignalConnector  # noqa: E402


# otherwise Lightning removes the handler that reports to the sandbox where a rank waits
_SignalConnector.register_signal_handlers = lambda self: None
