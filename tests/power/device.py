"""A real ext4 on a loop device whose power can be cut.

`cut` is the kernel's own EXT4_IOC_SHUTDOWN without a flush of the journal: from then on nothing reaches the device,
and every call on the file system fails. `restore` unmounts it and mounts it again, which replays the journal as after a
real power loss. What was only in the page cache is lost; what was synced is there.

The processes that use the device are the test's: kill them after `cut` and before `restore`.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_JOURNAL_FLUSH = struct.pack("I", 2)
MIB = 1 << 20


class DeviceError(Exception):
    """A loop device cannot be made, mounted or unmounted here."""


class Device:
    """One ext4 image, mounted at `mount`."""

    def __init__(self, folder: Path, size_mib: int) -> None:
        self.image = folder / "disk.img"
        self.mount = folder / "disk"
        self.mount.mkdir(parents=True)
        with open(self.image, "wb") as image:
            image.truncate(size_mib * MIB)
        _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,nodiscard", "-m", "0", self.image)
        self._mount()

    def cut(self) -> None:
        """Cut the power: everything that was not synced is lost."""
        descriptor = os.open(self.mount, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, NO_JOURNAL_FLUSH)
        finally:
            os.close(descriptor)

    def restore(self) -> None:
        """Mount what the cut left. No process may still have a file of it open."""
        _run("umount", self.mount)
        self._mount()
        if not self._is_alive():
            # A mount namespace that was made meanwhile still holds the file system whose power was cut, and the system
            # gave us that one. What is in the image does not change any more, so a copy of it is as good.
            _run("umount", self.mount)
            copy = self.image.with_name("copy.img")
            _run("cp", "--sparse=always", self.image, copy)
            copy.replace(self.image)
            self._mount()

    def _is_alive(self) -> bool:
        try:
            probe = self.mount / ".probe"
            probe.touch()
            probe.unlink()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Unmount, even if a process that a failed test left still has files open, and delete the image."""
        subprocess.run(["umount", "--lazy", str(self.mount)], check=False, capture_output=True)
        self.image.unlink(missing_ok=True)

    def _mount(self) -> None:
        _run("mount", "-o", "loop", self.image, self.mount)


@contextmanager
def device(folder: Path, size_mib: int = 256) -> Iterator[Device]:
    """A mounted device in a folder of its own; gone at the end."""
    made = Device(folder, size_mib)
    try:
        yield made
    finally:
        made.close()


def _run(*command: object) -> None:
    done = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True)
    if done.returncode:
        raise DeviceError(f"{command[0]}: {done.stderr.strip()}")
