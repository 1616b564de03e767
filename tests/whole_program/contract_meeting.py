"""The socket to which the workers of one run (reference/probe.py) send their reports, and at which they wait for each other.
contract.py opens one socket for each run of a case."""

import json
import os
import queue
import select
import signal
import socket
import threading

PATIENCE = 60  # maximum wait in seconds for the pids of the launchers


class Meeting:
    """Receives the messages of the workers in a thread. A worker that connects receives the number of its attempt, which is
    the number of earlier processes with its rank. The workers of one attempt continue after all of them have reported. Then
    the launchers receive the signals of the case, one after the other. A signal is sent when all workers have reported the
    previous signal."""

    def __init__(self, name: str, nodes: int, expected: int, send: tuple[str, ...]) -> None:
        self.workers: list[dict[str, dict]] = [{} for _ in range(nodes)]  # one dict for each node; its keys are "rank.attempt"
        self.signals: list[dict[str, list[str]]] = [{} for _ in range(nodes)]
        self._attempts: dict[tuple[int, str], int] = {}
        self._expected, self._waiting = expected, {}
        self._send, self._sent, self._pids = send, 0, queue.SimpleQueue()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind("\0" + name)
        self._listener.listen(64)
        self._wake, self._ended = os.pipe()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def launchers_are(self, pids: list[int]) -> None:
        self._pids.put(pids)

    def close(self) -> None:
        os.close(self._ended)
        self._thread.join()
        self._listener.close()
        os.close(self._wake)

    def _serve(self) -> None:
        unfinished: dict[socket.socket, bytes] = {}
        while True:
            ready, _, _ = select.select([self._wake, self._listener, *unfinished], [], [])
            if self._listener in ready:
                unfinished[self._listener.accept()[0]] = b""
            for link in [link for link in ready if link in unfinished]:
                try:
                    data = link.recv(1 << 16)
                except ConnectionResetError:  # the worker has exited without reading the message sent to it
                    continue
                *lines, rest = (unfinished.pop(link) + data).split(b"\n")
                for line in lines:
                    self._on_message(json.loads(line), link)
                if data:
                    unfinished[link] = rest
                else:
                    link.close()
            if self._wake in ready and len(ready) == 1:
                for link in unfinished:
                    link.close()
                return

    def _on_message(self, message: dict, link: socket.socket) -> None:
        node = int(message["node"])
        if "place" in message:
            place = (node, message["place"])
            self._attempts[place] = self._attempts.get(place, -1) + 1
            self._send_message(link, b"%d\n" % self._attempts[place])
            return
        worker = message["worker"]
        if "signal" in message:
            self.signals[node].setdefault(worker, []).append(message["signal"])
            self._send_next()
            return
        self.workers[node][worker] = message["seen"]
        environment = message["seen"]["environment"]
        together = self._waiting.setdefault((environment["TORCHELASTIC_RUN_ID"], worker.partition(".")[2]), [])
        together.append(link)
        if len(together) == int(environment["WORLD_SIZE"]):
            for each in together:
                self._send_message(each, b"!")
            self._send_next()

    @staticmethod
    def _send_message(link: socket.socket, what: bytes) -> None:
        try:
            link.sendall(what)
        except (BrokenPipeError, ConnectionResetError):  # the launcher has stopped this worker in the meantime
            pass

    def _send_next(self) -> None:
        delivered_count = sum(len(received) for node in self.signals for received in node.values())
        come = sum(map(len, self.workers))
        if self._sent < len(self._send) and come == self._expected and delivered_count == self._sent * self._expected:
            pids = self._pids.get(timeout=PATIENCE)
            self._pids.put(pids)
            self._sent += 1
            for pid in pids:
                os.kill(pid, getattr(signal, self._send[self._sent - 1]))
