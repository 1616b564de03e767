"""Chooses the snapshot that all ranks load in ddprun.restore(), and copies it to nodes that do not have it.

The problem. After a node was replaced, its ranks have no snapshot in their memory file, but other nodes do. If the state is the
same on all ranks, as with DDP, the new node can copy it from another node. All ranks must load the state of the same step, and
no unknown process may send or receive a state.

The agreement. All ranks send the names of their snapshots (offers) to rank 0, through the store of the worker channel. Rank 0
chooses one snapshot for all (_snapshot_choice.decide). On each node without this snapshot, one rank (the borrower) receives it
from a rank that has it (the lender). A state can be as large as the main memory, so it is sent over a separate TCP connection
between these two ranks. The agents and the store never carry it.

    lender      listens on the address of its node, and publishes the address in the store
    borrower    connects, and writes the data into its own slot of the memory file, where the other ranks of its node read it

The security. Rank 0 creates a secret for each restore(), which the store distributes over the agents' encrypted connections.
Both sides prove that they know the secret. All data has an authentication code, but is not encrypted, like the traffic of Gloo
and NCCL (docs/security.md). L is the lender and B the borrower; the numbers are bytes:

    B -> L   magic, nonce of B (32), rank of B (4)
    L -> B   nonce of L (32), proof of L (32)
    B -> L   proof of B (32)
    L -> B   header of the snapshot, code (32); then pieces of 1 MiB, the last one shorter, each followed by its code (32)

Failures. A failed copy is reported to rank 0 as one line, and then no rank restores a snapshot. If a rank is killed during the
copy, no rank may start from scratch, since it would then delete its snapshots. Rank 0 therefore waits until all lenders and
borrowers have answered. A dead rank never answers, so the wait lasts until the agents end the round."""

import collections
import contextlib
import errno
import hashlib
import hmac
import json
import os
import random
import socket
import struct
import threading
import time

_MAGIC = b"ddplend\x01"
_NONCE = _CODE = 32
_PIECE = 2 ** 20
_CONNECT_S = 10  # time limit in seconds to open a connection
_HELLO_S = 5  # time limit in seconds for a peer to prove that it knows the secret
# Time limit in seconds for one piece of data. It is longer than a worker lease (5 s), so that the agents detect a lost node
# first.
_SILENCE_S = 15
_MIN_BYTES_PER_S = 2 ** 20  # a transfer fails if its average rate is lower than this
# Maximum number of connections on which the peer has not sent its proof. A borrower sends its proof immediately. So if there
# are more such connections, the oldest one is not from a borrower and is closed.
_MAX_UNPROVEN = 64
_BULK = 0x08  # IPTOS_THROUGHPUT marks packets as bulk data, so that the agents' messages are sent before them


class _AgentGoneError(Exception):
    pass


class _PeerRefusedError(Exception):
    """Raised if the process at the other end of a connection does not know the secret."""


class RestoreExchange:
    """Exchanges messages between ranks during one restore(). `request(operation, key, value)` calls the key-value store that
    all ranks share."""

    def __init__(self, request, prefix, rank, world_size):
        self._request, self._prefix, self.rank, self.world_size = request, prefix, rank, world_size

    def publish(self, key, value):
        if self._request("set", self._prefix + key, json.dumps(value).encode()) is None:
            raise _AgentGoneError

    def wait_for(self, key):
        """Waits until another rank sets the key, and returns the value."""
        answer = self._request("get", self._prefix + key)
        if not answer:
            raise _AgentGoneError
        return json.loads(answer.decode())


def agree(exchange, offer, decide, snapshots, place, warn):
    """Returns the snapshot that all ranks restore, as {"step": its step, "round": its round}. If the ranks have no snapshot in
    common, "step" is None and "why" is the reason.

    `offer` describes the snapshots of this rank. `decide` is the function _snapshot_choice.decide. `snapshots` is the Snapshots
    object of this rank, or None. `place` is a pair: the address of this node, and the ports on which this rank may listen.
    `warn` is a function that prints one line.
    """
    try:
        if exchange.world_size == 1:
            return decide([offer])
        if exchange.rank > 0:
            exchange.publish(str(exchange.rank), offer)
            decision = exchange.wait_for("all")
        else:
            decision = decide([offer] + [exchange.wait_for(str(rank)) for rank in range(1, exchange.world_size)])
            if decision.get("borrow"):
                decision["secret"] = os.urandom(32).hex()
            exchange.publish("all", decision)
        return _exchange(exchange, decision, snapshots, place, warn) if decision.get("borrow") else decision
    except _AgentGoneError:
        return {"step": None, "why": "the agent is gone: no snapshot is restored"}


def _exchange(exchange, decision, snapshots, place, warn):
    lend, borrow, secret = decision["lend"], decision["borrow"], bytes.fromhex(decision["secret"])
    name = decision["step"], decision["round"]
    lender = None
    if exchange.rank in lend:
        try:
            lender = Lender(snapshots.copy_to_lend(name), secret, borrow, *place, warn)
        except (OSError, ValueError) as reason:
            exchange.publish("at/%d" % exchange.rank, {"why": str(reason)})
        else:
            exchange.publish("at/%d" % exchange.rank, {"host": lender.host, "port": lender.port})
    if exchange.rank in borrow:
        turn = borrow.index(exchange.rank) % len(lend)
        exchange.publish("borrowed/%d" % exchange.rank, {"why": _borrow(exchange, snapshots, name, secret, lend[turn:] + lend[:turn])})
    if exchange.rank == 0:
        failed = [why for why in (exchange.wait_for("borrowed/%d" % rank)["why"] for rank in borrow) if why]
        exchange.publish("over", {})
    elif exchange.rank in lend:
        exchange.wait_for("over")
    if lender is not None:
        lender.close()
    if exchange.rank > 0:
        if exchange.rank in lend:
            exchange.publish("closed/%d" % exchange.rank, {})
        return exchange.wait_for("end")
    for rank in lend:
        if rank != 0:
            exchange.wait_for("closed/%d" % rank)
    end = {"step": None, "why": failed[0] + "; no snapshot is restored"} if failed else {"step": name[0], "round": name[1]}
    exchange.publish("end", end)
    return end


def _borrow(exchange, snapshots, name, secret, lenders):
    """Tries the lenders in order, until the snapshot has been copied from one of them. Returns an empty string on success. If
    all lenders failed, returns the first error."""
    first = ""
    for rank in lenders:
        at = exchange.wait_for("at/%d" % rank)
        try:
            if "why" in at:
                raise OSError("that rank cannot listen: " + at["why"])
            snapshots.borrow(name, rank, at["host"], lambda: _Receiver(exchange.rank, at["host"], at["port"], secret))
            return ""
        except Exception as reason:  # the other ranks wait for this rank's result, so every error is returned as text
            first = first or "rank %d could not get the snapshot of step %d from rank %d%s: %s" % (
                exchange.rank, name[0], rank, " at %s" % _place(at["host"], at["port"]) if "host" in at else "", _reason_text(reason))
    return first


def _reason_text(reason):
    return "timed out" if isinstance(reason, socket.timeout) else str(reason) or type(reason).__name__


def _place(host, port):
    return "%s port %d" % (host, port)


def _proof(secret, side, theirs, mine, rank):
    return hmac.new(secret, side + theirs + mine + struct.pack("<I", rank), hashlib.sha256).digest()


class _Codes:
    """Computes the authentication codes of successive pieces. The code of a piece includes its number, so pieces cannot be
    reordered."""

    def __init__(self, secret, theirs, mine):
        self._key = hmac.new(secret, b"pieces" + theirs + mine, hashlib.sha256).digest()
        self._number = 0

    def next(self, data):
        code = hmac.new(self._key, struct.pack("<Q", self._number), hashlib.sha256)
        code.update(data)
        self._number += 1
        return code.digest()


def _read(connection, view, ends):
    """Reads until the view is full. Raises socket.timeout if the monotonic clock reaches `ends` before that."""
    got = 0
    while got < len(view):
        left = ends - time.monotonic()
        if left <= 0:
            raise socket.timeout
        connection.settimeout(min(left, _SILENCE_S))
        count = connection.recv_into(view[got:])
        if count == 0:
            raise ConnectionError("the other end closed the connection")
        got += count


def _read_bytes(connection, count, ends):
    data = bytearray(count)
    _read(connection, memoryview(data), ends)
    return bytes(data)


class _Receiver:
    """The borrower's end of a connection to a lender, from which it receives a snapshot. The caller must close it."""

    def __init__(self, rank, host, port, secret):
        self._connection = socket.create_connection((host, port), timeout=_CONNECT_S)
        try:
            mine = os.urandom(_NONCE)
            self._ends = time.monotonic() + _SILENCE_S
            self._connection.sendall(_MAGIC + mine + struct.pack("<I", rank))
            theirs = self._bytes(_NONCE)
            if not hmac.compare_digest(self._bytes(_CODE), _proof(secret, b"lender", mine, theirs, rank)):
                raise ConnectionError("the process at that address does not know the secret of this round")
            self._connection.sendall(_proof(secret, b"receiver", theirs, mine, rank))
            self._codes = _Codes(secret, mine, theirs)
        except BaseException:
            self.close()
            raise

    def _bytes(self, count):
        return _read_bytes(self._connection, count, self._ends)

    def header(self, length):
        data = self._bytes(length)
        self._check(data)
        return data

    def fill(self, view):
        self._ends = time.monotonic() + _SILENCE_S + len(view) / _MIN_BYTES_PER_S
        for at in range(0, len(view), _PIECE):
            piece = view[at:at + _PIECE]
            _read(self._connection, piece, self._ends)
            self._check(piece)

    def _check(self, data):
        if not hmac.compare_digest(self._bytes(_CODE), self._codes.next(data)):
            raise ConnectionError("the data was changed in transit")

    def close(self):
        self._connection.close()


class Lender:
    """Sends this rank's snapshot to each borrower that connects, until close() is called. A separate thread serves each
    connection."""

    def __init__(self, copy, secret, receivers, address, ports, warn):
        self._header, self._body = copy
        self._secret, self._receivers, self._print_line = secret, receivers, warn
        self._guard = threading.Lock()
        self._unproven = collections.OrderedDict()  # connections that have sent no proof yet, oldest first
        self._known = set()
        self._closed = self._warned = False
        if not address:
            raise ValueError("its node's address is unknown")
        self._listener = _listening(address, ports)
        self.host, self.port = address, self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="ddprun lends", daemon=True).start()

    def close(self):
        with self._guard:
            self._closed = True
            connections = [self._listener, *self._unproven, *self._known]
        for one in connections:
            _end(one)
        self._listener.close()

    def _accept(self):
        while True:
            try:
                connection, peer = self._listener.accept()
            except OSError:  # close() was called
                return
            with self._guard:
                if self._closed:
                    connection.close()
                    return
                if len(self._unproven) == _MAX_UNPROVEN:
                    _end(self._unproven.popitem(last=False)[0])
                self._unproven[connection] = True
            threading.Thread(target=self._serve, args=(connection, peer[0]), name="ddprun lends", daemon=True).start()

    def _serve(self, connection, peer):
        refused = False
        try:
            self._send(connection, self._codes_for(connection))
        except _PeerRefusedError:
            refused = True
        except OSError:
            pass
        with self._guard:
            self._unproven.pop(connection, None)
            self._known.discard(connection)
            first, self._warned = refused and not self._warned, self._warned or refused
        connection.close()
        if first:
            self._print_line("a process at %s requested the snapshot that this rank lends but does not know the secret: the request was refused" % peer)

    def _codes_for(self, connection):
        ends = time.monotonic() + _HELLO_S
        hello = _read_bytes(connection, len(_MAGIC) + _NONCE + 4, ends)
        theirs, rank = hello[len(_MAGIC):-4], struct.unpack("<I", hello[-4:])[0]
        if not hello.startswith(_MAGIC) or rank not in self._receivers:
            raise _PeerRefusedError
        mine = os.urandom(_NONCE)
        connection.sendall(mine + _proof(self._secret, b"lender", theirs, mine, rank))
        if not hmac.compare_digest(_read_bytes(connection, _CODE, ends), _proof(self._secret, b"receiver", mine, theirs, rank)):
            raise _PeerRefusedError
        with self._guard:
            if self._unproven.pop(connection, None):
                self._known.add(connection)
        return _Codes(self._secret, theirs, mine)

    def _send(self, connection, codes):
        connection.settimeout(_SILENCE_S)
        connection.sendall(self._header + codes.next(self._header))
        for at in range(0, len(self._body), _PIECE):
            piece = self._body[at:at + _PIECE]
            connection.sendall(piece)
            connection.sendall(codes.next(piece))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)  # returns when the borrower has read all data or has disconnected


def _end(connection):
    """Shuts the connection down. If a thread is blocked on it, that thread wakes up."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _listening(address, ports):
    """Returns a listening socket at the node's address. Its port is a free port of --port-range, or any port if this option is
    not set. Raises OSError if no port is free."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    low, high = (int(end) for end in ports.split("-")) if ports else (0, 0)
    numbers = list(range(low, high + 1))
    random.SystemRandom().shuffle(numbers)  # `random` itself would change the script's random state
    for number in numbers:
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            # SO_REUSEADDR is not set. It would let us bind a port that an agent has reserved with a socket that does not listen
            # yet.
            _bind(listener, address, number)
            with contextlib.suppress(OSError):
                if family == socket.AF_INET:
                    listener.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _BULK)
                else:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, _BULK)
            listener.listen(_MAX_UNPROVEN)
            return listener
        except OSError as reason:
            listener.close()
            if not ports or reason.errno != errno.EADDRINUSE:
                raise
    raise OSError("no port of --port-range %s is free" % ports)


def _bind(listener, address, port):
    try:
        listener.bind(socket.getaddrinfo(address, port, listener.family, socket.SOCK_STREAM)[0][4])
    except OSError as reason:
        if reason.errno != errno.EADDRNOTAVAIL:
            raise
        listener.bind(("", port))  # with NAT, no local interface has the address by which other nodes reach this node
