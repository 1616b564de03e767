"""The signals that a caller of a launcher ignores and blocks, as its children inherit them: torchrun_server.py's forks, and ddprun."""

import signal


def take_signals(order: dict) -> None:
    for name in order.get("ignored", ()):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [getattr(signal, name) for name in order.get("blocked", ())])
