"""Connections between boxes, and engines, on several hosts among which the ranks of one check are spread: framed, never blocking for
long, and only with whom knows the key. What goes over them are messages and, in their own frames, packets of the ranks' network."""

import hmac
import secrets
import select
import socket
import struct
import time

import psutil

from grader.box import messages

FRAME = struct.Struct("!Ic")  # bytes, and what they are
PACKET, MESSAGE = b"p", b"m"
QUEUED = 32 << 20  # bytes of packets that wait to leave; further ones are dropped, as networks do
CONNECTING, ANSWERING = 2, 5  # seconds for an address to answer at all, and for who is there to prove itself
HOST_GONE = ((socket.TCP_KEEPIDLE, 20), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 4))  # seconds, seconds, times
ENDS = (b"leads", b"follows")


class Lost(Exception):
    """The other end has hung up, or is not who it should be."""


class Link:
    """One end of a connection."""

    def __init__(self, connected):
        connected.setblocking(False)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_NODELAY, 1), *HOST_GONE):
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
        self.socket, self.arrived, self.leaving = connected, bytearray(), bytearray()

    def fileno(self):
        return self.socket.fileno()

    def message(self, thing):
        self._send(MESSAGE, messages.pack(thing))

    def packet(self, data):
        if len(self.leaving) < QUEUED:
            self._send(PACKET, data)

    def _send(self, kind, data):
        self.leaving += FRAME.pack(len(data), kind) + data
        self.flush()

    def flush(self):
        """Send as much as goes without waiting."""
        try:
            while self.leaving:
                del self.leaving[: self.socket.send(self.leaving)]
        except BlockingIOError:
            pass
        except OSError as error:
            raise Lost(f"a connection between hosts broke: {error}") from None

    def receive(self):
        """What has come, as pairs (PACKET, bytes) and (MESSAGE, thing). Raises Lost."""
        try:
            data = self.socket.recv(1 << 20)
            if not data:
                raise Lost("a connection between hosts has ended")
            self.arrived += data
        except BlockingIOError:
            pass  # what has come before may still be here
        except OSError as error:
            raise Lost(f"a connection between hosts broke: {error}") from None
        while len(self.arrived) >= FRAME.size:
            length, kind = FRAME.unpack_from(self.arrived)
            if length > messages.LIMIT:
                raise Lost("what came over a connection between hosts is too long")
            if len(self.arrived) < FRAME.size + length:
                return
            frame = bytes(self.arrived[FRAME.size : FRAME.size + length])
            del self.arrived[: FRAME.size + length]
            yield kind, frame if kind == PACKET else messages.unpack(frame)

    def next(self, seconds):
        """The next message, for which this waits. Raises Lost, also when none comes in some seconds."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            select.select([self], [self] if self.leaving else [], [], left)
            self.flush()
            for _, thing in self.receive():
                return thing
        raise Lost(f"nothing came over a connection between hosts for {seconds:.0f} seconds")

    def close(self):
        self.socket.close()


def listen():
    """A socket to which other hosts can connect, and the (address, port) pairs at which they may find it."""
    listener = socket.create_server(("", 0))
    port = listener.getsockname()[1]
    addresses = [one.address for all_of_one in psutil.net_if_addrs().values() for one in all_of_one if one.family == socket.AF_INET]
    return listener, [(address, port) for address in sorted(addresses, key=lambda address: address.startswith("127."))]


def accept(listener, key):
    """A Link to who has connected. Raises Lost when that one does not know the key."""
    connected, _ = listener.accept()
    return _proved(connected, key, *ENDS)


def connect(places, key):
    """A Link to who listens at the first of some (address, port) pairs that does and knows the key. Raises Lost."""
    for address, port in places:
        try:
            return _proved(socket.create_connection((address, port), CONNECTING), key, *reversed(ENDS))
        except (OSError, Lost) as error:
            problem = error
    raise Lost(f"the engine that leads can't be reached at {places}: {problem}")


def _proved(connected, key, own, other):
    """Both ends show that they know the key, without telling it: each answers to what the other has made up."""
    connected.settimeout(ANSWERING)
    question = secrets.token_bytes(32)
    try:
        connected.sendall(question)
        asked = messages.exactly(connected, 32)
        connected.sendall(hmac.digest(key, own + bytes(asked or b"") + question, "sha256"))
        answer = messages.exactly(connected, 32)
    except OSError as error:
        connected.close()
        raise Lost(f"the other end does not answer: {error}") from None
    if not asked or not answer or not hmac.compare_digest(answer, hmac.digest(key, other + question + bytes(asked), "sha256")):
        connected.close()
        raise Lost("the other end does not know the key")
    return Link(connected)
