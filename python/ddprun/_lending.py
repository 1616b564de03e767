"""Agrees on the copy that all ranks load in ddprun.restore(), and sends it to nodes that have no copy.

All ranks send their offers to rank 0, through the store of the worker channel, and rank 0 decides (_snapshot.decide). If a node has no copy of the
step, and the state is the same on all ranks, one rank of that node borrows it from a rank that has it. The state has a connection of its own between
these two ranks, since it may be as large as the memory. It passes neither the agents nor the store.

    lender      listens at its node's address, and publishes the address in the store
    borrower    connects, and writes the data into its own memory for snapshots, from which the other ranks of its node read it

Both sides prove that they know a secret, which rank 0 makes for this one restore(). The store distributes it over the agents' encrypted connections.
All data is authenticated with it, but not encrypted. The traffic of Gloo and NCCL is not encrypted either (docs/security.md).

    B -> L   magic, nonce of B (32), rank of B (4)
    L -> B   nonce of L (32), proof of L (32)
    B -> L   proof of B (32)
    L -> B   header of the snapshot, code (32); then pieces of 1 MiB, the last one shorter, each followed by its code (32)

Any failure is sent to rank 0 as one line, and then no rank restores anything. The death of a rank is different: rank 0 does not decide before all
lenders and borrowers have answered, and the agents end the round if a rank dies. So a killed rank does not make the others start over and clear their
copies."""

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
_CONNECT_S = 10
_HELLO_S = 5  # for a peer that has not proved that it knows the secret
_SILENCE_S = 15  # for one piece; longer than a lease (5 s), so that a lost node is noticed by the agents first
_SLOWEST = 2 ** 20  # bytes per second; with the times above it limits the whole transfer
_MOST_STRANGERS = 64  # more cannot be borrowers: a borrower proves the secret immediately
_BULK = 0x08  # IPTOS_THROUGHPUT: messages between agents have priority


class _AgentIsGone(Exception):
    pass


class _Refused(Exception):
    """The received data does not come from a peer that knows the secret."""


class Talk:
    """One rank's part in one restore(). `ask(operation, key, value)` sends a request to the store."""

    def __init__(self, ask, prefix, rank, world_size):
        self._ask, self._prefix, self.rank, self.world_size = ask, prefix, rank, world_size

    def tell(self, key, value):
        if self._ask("set", self._prefix + key, json.dumps(value).encode()) is None:
            raise _AgentIsGone

    def hear(self, key):
        """Waits until a rank sets the key."""
        answer = self._ask("get", self._prefix + key)
        if not answer:
            raise _AgentIsGone
        return json.loads(answer.decode())


def agree(talk, offer, decide, snapshots, place, say):
    """Returns the copy that all ranks restore: {"step": the step or None, "round": the copy's round, "why": a line if there is none}. snapshots: this
    rank's Snapshots, or None. place: this node's address, and the ports that it may listen on. say: prints a line."""
    try:
        if talk.world_size == 1:
            return decide([offer])
        if talk.rank > 0:
            talk.tell(str(talk.rank), offer)
            decision = talk.hear("all")
        else:
            decision = decide([offer] + [talk.hear(str(rank)) for rank in range(1, talk.world_size)])
            if decision.get("borrow"):
                decision["secret"] = os.urandom(32).hex()
            talk.tell("all", decision)
        return _exchange(talk, decision, snapshots, place, say) if decision.get("borrow") else decision
    except _AgentIsGone:
        return {"step": None, "why": "the agent is gone"}


def _exchange(talk, decision, snapshots, place, say):
    lend, borrow, secret = decision["lend"], decision["borrow"], bytes.fromhex(decision["secret"])
    name = decision["step"], decision["round"]
    lender = None
    if talk.rank in lend:
        try:
            lender = Lender(snapshots.copy_to_lend(name), secret, borrow, *place, say)
        except (OSError, ValueError) as reason:
            talk.tell("at/%d" % talk.rank, {"why": str(reason)})
        else:
            talk.tell("at/%d" % talk.rank, {"host": lender.host, "port": lender.port})
    if talk.rank in borrow:
        turn = borrow.index(talk.rank) % len(lend)
        talk.tell("borrowed/%d" % talk.rank, {"why": _borrow(talk, snapshots, name, secret, lend[turn:] + lend[:turn])})
    if talk.rank == 0:
        failed = [why for why in (talk.hear("borrowed/%d" % rank)["why"] for rank in borrow) if why]
        talk.tell("over", {})
    elif talk.rank in lend:
        talk.hear("over")
    if lender is not None:
        lender.close()
    if talk.rank > 0:
        if talk.rank in lend:
            talk.tell("closed/%d" % talk.rank, {})
        return talk.hear("end")
    for rank in lend:
        if rank != 0:
            talk.hear("closed/%d" % rank)
    end = {"step": None, "why": failed[0] + ": none is restored"} if failed else {"step": name[0], "round": name[1]}
    talk.tell("end", end)
    return end


def _borrow(talk, snapshots, name, secret, lenders):
    """Borrows from the first lender that succeeds. Returns "", or why all failed."""
    first = ""
    for rank in lenders:
        at = talk.hear("at/%d" % rank)
        try:
            if "why" in at:
                raise OSError("it cannot listen: " + at["why"])
            snapshots.borrow(name, rank, at["host"], lambda: _Receiver(talk.rank, at["host"], at["port"], secret))
            return ""
        except Exception as reason:  # any error: the other ranks must get a result
            first = first or "rank %d could not get the snapshot of step %d from rank %d%s: %s" % (
                talk.rank, name[0], rank, " at %s" % _place(at["host"], at["port"]) if "host" in at else "", _words(reason))
    return first


def _words(reason):
    return "nothing came for too long" if isinstance(reason, socket.timeout) else str(reason) or type(reason).__name__


def _place(host, port):
    return "%s port %d" % (host, port)


def _proof(secret, who, theirs, mine, rank):
    return hmac.new(secret, who + theirs + mine + struct.pack("<I", rank), hashlib.sha256).digest()


class _Codes:
    """The authentication codes of the pieces, in order."""

    def __init__(self, secret, theirs, mine):
        self._key = hmac.new(secret, b"pieces" + theirs + mine, hashlib.sha256).digest()
        self._number = 0

    def next(self, data):
        code = hmac.new(self._key, struct.pack("<Q", self._number), hashlib.sha256)
        code.update(data)
        self._number += 1
        return code.digest()


def _read(connection, view, ends):
    """Fills the whole view. `ends`: time at which the data must be complete."""
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
    """The borrower's side. One connection; the caller closes it."""

    def __init__(self, rank, host, port, secret):
        self._connection = socket.create_connection((host, port), timeout=_CONNECT_S)
        try:
            mine = os.urandom(_NONCE)
            self._ends = time.monotonic() + _SILENCE_S
            self._connection.sendall(_MAGIC + mine + struct.pack("<I", rank))
            theirs = self._bytes(_NONCE)
            if not hmac.compare_digest(self._bytes(_CODE), _proof(secret, b"lender", mine, theirs, rank)):
                raise ConnectionError("who answers there does not know the secret of this round")
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
        self._ends = time.monotonic() + _SILENCE_S + len(view) / _SLOWEST
        for at in range(0, len(view), _PIECE):
            piece = view[at:at + _PIECE]
            _read(self._connection, piece, self._ends)
            self._check(piece)

    def _check(self, data):
        if not hmac.compare_digest(self._bytes(_CODE), self._codes.next(data)):
            raise ConnectionError("what came was changed on the way")

    def close(self):
        self._connection.close()


class Lender:
    """The lender's side. One thread for each connection, until close()."""

    def __init__(self, copy, secret, receivers, address, ports, say):
        self._header, self._body = copy
        self._secret, self._receivers, self._say = secret, receivers, say
        self._guard = threading.Lock()
        self._strangers = collections.OrderedDict()  # connections without a proof so far, the oldest first
        self._known = set()
        self._closed = self._warned = False
        if not address:
            raise ValueError("its node's address is not known")
        self._listener = _listening(address, ports)
        self.host, self.port = address, self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="ddprun lends", daemon=True).start()

    def close(self):
        with self._guard:
            self._closed = True
            everybody = [self._listener, *self._strangers, *self._known]
        for one in everybody:
            _end(one)
        self._listener.close()

    def _accept(self):
        while True:
            try:
                connection, who = self._listener.accept()
            except OSError:  # close() was called
                return
            with self._guard:
                if self._closed:
                    connection.close()
                    return
                if len(self._strangers) == _MOST_STRANGERS:
                    _end(self._strangers.popitem(last=False)[0])
                self._strangers[connection] = True
            threading.Thread(target=self._serve, args=(connection, who[0]), name="ddprun lends", daemon=True).start()

    def _serve(self, connection, who):
        refused = False
        try:
            self._send(connection, self._codes_for(connection))
        except _Refused:
            refused = True
        except OSError:
            pass
        with self._guard:
            self._strangers.pop(connection, None)
            self._known.discard(connection)
            first, self._warned = refused and not self._warned, self._warned or refused
        connection.close()
        if first:
            self._say("somebody at %s asked for the snapshot that this rank lends and does not know the secret: it got nothing" % who)

    def _codes_for(self, connection):
        ends = time.monotonic() + _HELLO_S
        hello = _read_bytes(connection, len(_MAGIC) + _NONCE + 4, ends)
        theirs, rank = hello[len(_MAGIC):-4], struct.unpack("<I", hello[-4:])[0]
        if not hello.startswith(_MAGIC) or rank not in self._receivers:
            raise _Refused
        mine = os.urandom(_NONCE)
        connection.sendall(mine + _proof(self._secret, b"lender", theirs, mine, rank))
        if not hmac.compare_digest(_read_bytes(connection, _CODE, ends), _proof(self._secret, b"receiver", mine, theirs, rank)):
            raise _Refused
        with self._guard:
            if self._strangers.pop(connection, None):
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
        connection.recv(1)  # returns when the borrower has read everything, or is gone


def _end(connection):
    """Ends the connection and wakes a thread that waits for it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _listening(address, ports):
    """A socket at the node's address, with a free port of --port-range if possible."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    low, high = (int(end) for end in ports.split("-")) if ports else (0, -1)
    numbers = list(range(low, high + 1))
    random.SystemRandom().shuffle(numbers)  # does not change the script's random state
    for number in [*numbers, 0]:
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            # Without SO_REUSEADDR: an agent holds ports with sockets that do not listen yet.
            _bind(listener, address, number)
            with contextlib.suppress(OSError):
                if family == socket.AF_INET:
                    listener.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _BULK)
                else:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, _BULK)
            listener.listen(_MOST_STRANGERS)
            return listener
        except OSError:
            listener.close()
            if number == 0:
                raise
    raise AssertionError("0 is the last one")


def _bind(listener, address, port):
    try:
        listener.bind(socket.getaddrinfo(address, port, listener.family, socket.SOCK_STREAM)[0][4])
    except OSError as reason:
        if reason.errno != errno.EADDRNOTAVAIL:
            raise
        listener.bind(("", port))  # other nodes know this node by an address that no local interface has
