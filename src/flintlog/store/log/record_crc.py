"""The optional checksum over a whole record: RocketMQ's CRC property.

The CRC in a record's head covers its body alone; this one covers topic, properties and every number too. Stores that
write it (`enabled_append_prop_crc`) check it where a record has one. Other stores ignore it: a client may have sent a
wrong one. With `force_verify_prop_crc` every record must have it.
"""

from __future__ import annotations

from typing import Final

from flintlog.format.record import has_crc_property, has_good_crc_property
from flintlog.kernel import Crc, ScanStop
from flintlog.store.options.store_config import StoreConfig

WRONG: Final = "the record does not match the CRC over all of it"
MISSING: Final = "the record has no CRC over all of it, and must have one (force_verify_prop_crc)"


FAULTS: Final = {ScanStop.BAD_RECORD_CRC: WRONG, ScanStop.NO_RECORD_CRC: MISSING}


def crc_to_check(config: StoreConfig) -> Crc:
    """Which sums of its records a store of this configuration has checked."""
    if config.force_verify_prop_crc:
        return Crc.FORCED
    return Crc.RECORD if config.enabled_append_prop_crc else Crc.BODY


class RecordCrc:
    """Checks whole records, as the configuration asks for."""

    def __init__(self, config: StoreConfig) -> None:
        self._must_be_there = config.force_verify_prop_crc
        self.is_on = config.enabled_append_prop_crc or config.force_verify_prop_crc
        self.checked = crc_to_check(config)

    def fault_in(self, record: bytes | memoryview) -> str | None:
        """What is wrong with the bytes of one record; None when nothing is, or it is not checked."""
        if not self.is_on or has_good_crc_property(record):
            return None
        if has_crc_property(record):
            return WRONG
        return MISSING if self._must_be_there else None
