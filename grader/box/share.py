"""A box's share of the ranks of a check that is spread over several hosts: who its box reports to, and who ends it."""

import os
from contextlib import suppress

from grader.box import link

LOOK = 0.25  # seconds between reports
AT_ONCE = 50  # packets, after which the ranks are looked at again


class Share:
    """The end of the link to the switch, and of the network of the ranks in this box."""

    def __init__(self, about):
        """about: where the switch is ("places", "key"), which share this is ("number"), of which run ("run")."""
        self.link = link.connect(about["places"], bytes.fromhex(about["key"]))
        self.link.message({"number": about["number"], "run": about["run"]})
        self.network = self.end = self.told = None
        self.last = 0.0

    def begin(self, network):
        """network: a descriptor from which the packets come that ranks send, and to which go those for them."""
        os.set_blocking(network, False)
        self.network = network
        self.link.message({"done": False, "failed": False, "cpu": 0.0, "running": True})  # from now on packets may come

    def carry(self):
        """Take packets from the ranks to the switch and back, and note when the switch ends it all: `end` is then (why, seconds left).

        Raises link.Lost when the switch is gone, which is no word about the ranks.
        """
        try:
            self.link.flush()
            with suppress(BlockingIOError):
                for _ in range(AT_ONCE):
                    self.link.packet(os.read(self.network, 1 << 16))
            for kind, what in self.link.receive():
                if kind == link.PACKET:
                    self._deliver(what)
                else:
                    self.end = what["why"], what["seconds"]
        except link.Lost:
            if self.end is None:
                raise

    def _deliver(self, packet):
        with suppress(OSError):  # its queue is full, or it is no packet
            os.write(self.network, packet)

    def report(self, now, done, failed, activity):
        """Tell the switch how things are when they have changed, or every now and then. activity: a function, watch.activity."""
        if (done, failed) == self.told and now - self.last < LOOK:
            return
        cpu, running = activity()
        self.told, self.last = (done, failed), now
        self.link.message({"done": done, "failed": failed, "cpu": cpu, "running": running})
