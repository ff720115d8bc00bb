"""For the tests of the other systems: TensorFlow in this process, with four virtual devices."""

import pytest


@pytest.fixture(scope="session")
def strategies():
    """A function: a MirroredStrategy over as many of the CPU's devices."""
    from handson.tensorflow import devices, tf

    devices.threads(4)  # one for each replica: an all-reduce waits until all are in it
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
    return lambda replicas: tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(replicas)])
