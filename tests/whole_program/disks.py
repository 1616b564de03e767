"""Provides file systems that are full after a few kilobytes, or that block all writes for a while. A test is skipped if they
cannot be mounted."""

import contextlib
import os
import pathlib
import shutil
import subprocess

import pytest


@contextlib.contextmanager
def small_disk(folder: pathlib.Path, size: str):
    """Mounts a private tmpfs of this size. Skips the test if this user cannot mount file systems."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs permission to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


class StallingDisk:
    """A private ext4 file system that can be frozen. A process that writes to a frozen file system blocks in the kernel until
    the file system is thawed. A file server that does not answer has the same effect."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    def freeze(self):
        subprocess.run(["fsfreeze", "-f", str(self.folder)], check=True)

    def stall(self, seconds: float):
        """Freezes the file system for `seconds`. A separate process thaws it, even if this process is killed in the
        meantime."""
        subprocess.run(["sh", "-c", 'fsfreeze -f "$1"; sleep "$2"; fsfreeze -u "$1"', "sh", str(self.folder), str(seconds)], check=True, start_new_session=True)

    def thaw(self):
        subprocess.run(["fsfreeze", "-u", str(self.folder)], check=False, capture_output=True)


@contextlib.contextmanager
def stalling_disk(folder: pathlib.Path):
    """Yields a StallingDisk. Skips the test if this user cannot mount file systems. The file system is always thawed at the
    end, because a process that is blocked in a write to it cannot be killed."""
    missing = [tool for tool in ("mkfs.ext4", "fsfreeze", "losetup") if not shutil.which(tool)]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"a disk that can be frozen needs root and {', '.join(missing) or 'nothing else'}")
    image = folder.with_suffix(".img")
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=1", str(image)], check=True, capture_output=True)
    folder.mkdir()
    if subprocess.run(["mount", "-o", "loop", str(image), str(folder)], capture_output=True, check=False).returncode != 0:
        image.unlink()
        pytest.skip("a disk that can be frozen needs permission to mount a loop device")
    disk = StallingDisk(folder)
    try:
        yield disk
    finally:
        disk.thaw()
        subprocess.run(["umount", "-l", str(folder)], check=True)
        image.unlink()
