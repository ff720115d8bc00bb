"""For the tests of the other systems: TensorFlow in this process, with four virtual devices."""

import tempfile

import pytest


@pytest.fixture(scope="session", autouse=True)
def temporary():
    """The folder for temporary files of other processes: those that are killed leave what TensorFlow and torchrun have
    written there."""
    with (
        tempfile.TemporaryDirectory(prefix="frameworks-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        yield


@pytest.fixture(scope="session")
def strategies():
    """A function: a MirroredStrategy over as many of the CPU's devices. Collective operations of one process have
    groups of one size, so that strategies of several sizes add up in another way."""
    from handson.tensorflow import devices

    import tensorflow as tf

    devices.threads(4)
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
    add_up = tf.distribute.ReductionToOneDevice()
    return lambda replicas: tf.distribute.MirroredStrategy(
        [f"CPU:{number}" for number in range(replicas)], cross_device_ops=add_up
    )
