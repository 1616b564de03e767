"""Ignores and blocks signals like a process that starts a launcher. The child processes (the forks of torchrun_server.py, or
ddprun) inherit these settings."""

import signal


def take_signals(order: dict) -> None:
    for name in order.get("ignored", ()):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [getattr(signal, name) for name in order.get("blocked", ())])
