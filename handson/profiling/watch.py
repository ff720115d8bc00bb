"""``python -m handson watch``: show the utilisation of real and virtual GPUs while a job runs, as nvidia-smi does."""

import collections
import itertools
import statistics
import sys
import time

from handson.errors import OneSentence
from handson.language import speak
from handson.profiling import usage


class WatchError(OneSentence, OSError):
    """The reason why samples cannot be written."""


def watch(output=None, interval=2, count=None, say=speak):
    """Print the utilisation of each device every `interval` seconds, `count` times or until Ctrl-C, and write it to the
    file `output` if there is one. Raises WatchError."""
    of_devices = usage.devices()
    try:
        samples = usage.Samples(output, of_devices, interval) if output else None
    except OSError as error:
        raise WatchError(f"{output} cannot be written ({error.strerror}): give another place with -o") from None
    seen, due = collections.deque(maxlen=10_000), time.monotonic()
    try:
        for _ in itertools.repeat(None) if count is None else range(count):
            due += interval
            time.sleep(max(0, due - time.monotonic()))
            sample = samples.take() if samples else list(of_devices.sample())
            if seen and sys.stdout.isatty():
                say(f"\033[{len(sample) + 1}A\033[J", nl=False)  # overwrite the last table
            for line in table(of_devices.names, sample, seen[-1] if seen else None, interval, of_devices.limits):
                say(line)
            seen.append(sample)
    except SystemExit:  # Ctrl-C ends commands with it
        for name, *of_device in zip(of_devices.names, *seen):
            if None in (value for one in of_device for value in one[:2]):
                continue  # the device does not report it
            say(
                f"{name}: {statistics.fmean(one[0] for one in of_device):.0f} % busy on average,"
                f" {max(one[1] for one in of_device) / 2**20:,.0f} MiB at most"
            )
        raise


def table(names, sample, before, interval, limits=None):
    """Return a sample as lines: utilisation, memory (and its limit, from `limits` in bytes or None), and power if the
    device reports its energy."""
    limits = [f" / {limit / 2**20:,.0f} MiB" if limit else "" for limit in limits or [None] * len(names)]
    wider = max(map(len, limits))
    width = max(map(len, names))
    lines = [
        f"{time.strftime('%H:%M:%S'):{width}}  utilisation       "
        f" memory{' ' * wider}{'    power' * (sample[0][2] is not None)}".rstrip()
    ]
    for index, (name, (utilisation, memory, energy)) in enumerate(zip(names, sample)):
        power = f"{(energy - before[index][2]) / interval:6.0f} W" if energy is not None and before else ""
        busy = "not reported" if utilisation is None else f"{utilisation:9.0f} % "
        used = "not reported" if memory is None else f"{memory / 2**20:8,.0f} MiB"
        lines.append(f"{name:{width}}  {busy:13}{used:>12}{limits[index]:{wider}} {power}".rstrip())
    return lines
