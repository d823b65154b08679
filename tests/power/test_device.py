"""The device itself: a cut takes what was not synced, and nothing else."""

from __future__ import annotations

import os

from tests.power.conftest import MakeDevice


def test_cut_keeps_synced_bytes_and_loses_the_others(make_device: MakeDevice) -> None:
    disk = make_device(size_mib=64)
    synced, cached = disk.mount / "synced", disk.mount / "cached"
    for path in (synced, cached):
        path.write_bytes(bytes(8192))
        descriptor = os.open(path, os.O_RDWR)
        os.fsync(descriptor)
        os.pwrite(descriptor, b"message", 4096)
        if path is synced:
            os.fsync(descriptor)
        os.close(descriptor)

    disk.cut()
    disk.restore()

    assert synced.read_bytes()[4096:4103] == b"message"
    assert cached.read_bytes()[4096:4103] == bytes(7)
