"""Runs the ranks of a check on several hosts: hands shares of them to other engines, carries what the ranks send each other, and decides
for all of them together when they have had their time."""

import secrets
import selectors
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict

from grader.box import link, messages
from grader.box.client import BoxFault, Outcome, RankOutcome
from grader.box.share import LOOK
from grader.box.watch import GRACE, TICK, Patience
from grader.sandbox import Limits

NETWORK = "10.77.0."  # of the ranks: those of share 0 are at 10.77.0.1, and so on; nobody else is there
PREFIX = bytes(map(int, NETWORK.split(".")[:3]))
MEETING = f"tcp://{NETWORK}1:29500"
FRESH = 4 * LOOK  # seconds for which a report says how things are
GATHERING = 10  # seconds for the other engines to connect
SILENT = 60  # seconds without a report; before the first, libraries are loaded
FEW = 100  # packets that wait for a box to begin


class Spread:
    """As a grader.box.Server, in a `with`, on an engine that leads: some of the ranks run there, the others where engines `follow`.

    engines: how many there are on each host, first on the leader's; listener: a socket that listens; key: known to those who follow.
    """

    def __init__(self, server, engines, listener, key):
        self.server, self.engines, self.listener, self.key = server, engines, listener, key
        self.followers, self.lost = {}, None  # number of the share -> Link; what was lost

    def __enter__(self):
        """Wait for the engines that follow; where some can't come, all ranks run here."""
        deadline = time.monotonic() + GATHERING
        try:
            while len(self.followers) < len(self.engines) - 1:
                self.listener.settimeout(max(0.01, deadline - time.monotonic()))
                with suppress(link.Lost):  # of strangers
                    one = link.accept(self.listener, self.key)
                    self.followers[one.next(link.ANSWERING)["follows"]] = one
        except TimeoutError:
            self.engines = [sum(self.engines)]
        return self

    def __exit__(self, *error):
        for one in self.followers.values():  # who may go
            one.close()

    def run(self, function, arguments=(), ranks=1, limits=None, readable=None):
        """As Server.run."""
        shares, limits = divided(ranks, self.engines), limits or Limits()
        if len(shares) == 1:
            return self.server.run(function, arguments, ranks, limits, readable)
        if self.lost:
            raise BoxFault(self.lost)
        self.server.start()  # not in the pool: it ends with the thread that has started it
        run = _Run(self, shares, limits)
        with ThreadPoolExecutor(1) as pool:
            try:
                for number in list(shares)[1:]:
                    work = {"function": function, "arguments": list(arguments), "ranks": ranks, "limits": vars(limits)}
                    self.followers[number].message(work | {"share": run.share(number)})
                return run.switch(pool.submit(self.server.run, function, arguments, ranks, limits, readable, run.share(0)))
            except (link.Lost, OSError, messages.BadMessage) as error:
                self.lost = f"an engine with some of the ranks was lost: {error}"
                raise BoxFault(self.lost) from error
            finally:
                run.close()  # and with it all boxes, also the one that the pool waits for


def follow(number, server, readable, places, key, seconds):
    """Run ranks for an engine that leads, until it hangs up, or wants nothing for some seconds. number: of its hosts, from 1."""
    leader = link.connect(places, key)
    try:
        leader.message({"follows": number})
        while True:
            work = leader.next(seconds)
            share = work["share"] | {"places": [leader.socket.getpeername()]}
            try:
                outcome = server.run(work["function"], work["arguments"], work["ranks"], Limits(**work["limits"]), readable, share)
                leader.message({"run": share["run"], "outcome": asdict(outcome)})
            except BoxFault as fault:
                leader.message({"run": share["run"], "fault": str(fault)})
    except link.Lost:
        pass
    finally:
        leader.close()


def divided(ranks, engines):
    """Which ranks run on each of some hosts that have so many engines: {number of the host: ranks}; hosts without any are left out."""
    hosts = [host for host, count in enumerate(engines) for _ in range(count)]
    shares = {}
    for rank in range(ranks):
        shares.setdefault(hosts[rank * len(hosts) // max(ranks, len(hosts))], []).append(rank)
    return shares


class _Run:
    """One run of ranks in several boxes, as their switch sees it."""

    def __init__(self, spread, shares, limits):
        self.spread, self.shares = spread, shares
        self.name, self.patience, self.end = secrets.token_hex(8), Patience(limits), None
        self.boxes, self.waiting, self.outcomes = {}, defaultdict(list), {}  # by number of the share
        self.reports, self.heard = {}, dict.fromkeys(shares, self.patience.start)
        self.looked = self.patience.start
        self.selector = selectors.DefaultSelector()

    def share(self, number):
        """What the box of a share has to know."""
        return {
            "number": number, "ranks": self.shares[number], "run": self.name,
            "places": [("127.0.0.1", self.spread.listener.getsockname()[1])], "key": self.spread.key.hex(),
            "address": f"{NETWORK}{number + 1}", "meeting": MEETING,
        }  # fmt: skip

    def switch(self, own):
        """Until all boxes have ended; own: the future of the one here. Returns their Outcome. Raises link.Lost."""
        self.selector.register(self.spread.listener, selectors.EVENT_READ, (self._welcome, None))
        for number in self.shares.keys() & self.spread.followers.keys():
            self.selector.register(self.spread.followers[number], selectors.EVENT_READ, (self._take_outcome, number))
        while len(self.outcomes) < len(self.shares):
            for box in self.boxes.values():
                key = self.selector.get_key(box)
                self.selector.modify(box, selectors.EVENT_READ | bool(box.leaving) * selectors.EVENT_WRITE, key.data)
            for key, _ in self.selector.select(TICK):
                does, number = key.data
                does(number)
            if 0 not in self.outcomes and own.done():
                self.outcomes[0] = own.result()
            self._decide(now := time.monotonic())
            self.looked = now
        outcomes = [self.outcomes[number] for number in sorted(self.shares)]
        return Outcome(
            [rank for outcome in outcomes for rank in outcome.ranks],
            sum(outcome.cpu_seconds for outcome in outcomes),
            max(outcome.seconds for outcome in outcomes),
        )

    def _welcome(self, _):
        """A box has connected."""
        with suppress(link.Lost):
            box = link.accept(self.spread.listener, self.spread.key)
            hello = box.next(link.ANSWERING)
            if hello.get("run") != self.name:  # one of a run that has ended
                return box.close()
            self.boxes[hello["number"]] = box
            self.selector.register(box, selectors.EVENT_READ, (self._serve, hello["number"]))
            if self.end:
                box.message(self.end)
            self._serve(hello["number"])

    def _serve(self, number):
        """Take what comes from a box: packets, which go on to another, and reports."""
        box = self.boxes[number]
        try:
            box.flush()
            for kind, what in box.receive():
                if kind == link.PACKET:
                    self._forward(what)
                    continue
                self.reports[number], self.heard[number] = what, time.monotonic()
                for packet in self.waiting.pop(number, ()):
                    box.packet(packet)
        except link.Lost:  # it has ended; how, its engine says
            self.selector.unregister(box)
            self.boxes.pop(number).close()

    def _forward(self, packet):
        """Send a packet of IPv4 to the box that has its destination."""
        if packet[:1] != b"\x45" or packet[16:19] != PREFIX:
            return
        self.patience.moved = time.monotonic()
        number = packet[19] - 1
        if number in self.reports and number in self.boxes:
            self.boxes[number].packet(packet)
        elif number in self.shares and len(self.waiting[number]) < FEW:
            self.waiting[number].append(packet)

    def _take_outcome(self, number):
        for _, what in self.spread.followers[number].receive():
            if what["run"] != self.name:  # one that has been given up
                continue
            if "fault" in what:
                raise BoxFault(what["fault"])
            self.outcomes[number] = Outcome(**what["outcome"] | {"ranks": [RankOutcome(**rank) for rank in what["outcome"]["ranks"]]})

    def _decide(self, now):
        """End all boxes when it is time; as watch.run does where there is one."""
        for number in self.shares.keys() - self.outcomes.keys():
            if now - self.heard[number] > SILENT:
                raise link.Lost(f"nothing is heard of rank {self.shares[number][0]}")
        reports = self.reports.values()
        if self.end:
            return
        if self.outcomes or any(report["failed"] for report in reports):
            self._end(None, GRACE)
        elif len(reports) < len(self.shares):
            self.patience.start = self.patience.moved = now  # some still load their libraries
        elif min(self.heard.values()) < now - FRESH or self.looked < now - FRESH:
            self.patience.moved = now  # nobody knows: a host, or this process, was too busy
        elif all(report["done"] for report in reports):
            self._end(None, 0)
        elif over := self.patience.over(sum(report["cpu"] for report in reports), any(report["running"] for report in reports)):
            self._end(over, GRACE)

    def _end(self, why, seconds):
        self.end = {"why": why, "seconds": seconds}
        for number in list(self.boxes):
            with suppress(link.Lost):
                self.boxes[number].message(self.end)

    def close(self):
        """End what is left."""
        self.selector.close()
        for box in self.boxes.values():
            box.close()
