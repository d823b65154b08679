"""Opening a store: the arguments are checked, what the directory says about itself is read, then it is started.

The modules of a running store are imported when the first one is opened: a program that only may need a store starts
without them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flintlog.disk.places import local_path
from flintlog.errors import InvalidConfig
from flintlog.store.options.store_config import StoreConfig

if TYPE_CHECKING:
    from flintlog.disk.media.medium import Medium
    from flintlog.store.runtime.clock import Clock, Milliseconds
    from flintlog.store.runtime.jobs import Progress
    from flintlog.store.store import Store


def open_store(
    path: str | os.PathLike[str],
    config: StoreConfig | None = None,
    *,
    clock: Clock | Milliseconds | None = None,
    read_only: bool = False,
    medium: Medium | None = None,
    progress: Progress | None = None,
) -> Store:
    """Open a store directory: load, recover, start. A directory that does not exist becomes an empty store.

    `read_only` takes no lock and writes nothing: what has to be recovered is recovered in memory.

    >>> import tempfile
    >>> from flintlog import Message
    >>> config = StoreConfig(mapped_file_size_commit_log=65536, max_hash_slot_num=100, max_index_num=400)
    >>> with tempfile.TemporaryDirectory() as folder, open_store(folder, config) as store:
    ...     receipt = store.put(Message("orders", b"42 pieces", tags="paid", keys=["o-17"]))
    ...     [message.body for message in store.get("orders", queue_id=0, offset=0, filter="paid || shipped").messages]
    [b'42 pieces']
    """
    from flintlog.store.store import start_store

    if config is not None and not isinstance(config, StoreConfig):
        raise InvalidConfig(f"a store is opened with a StoreConfig, not {type(config).__name__}")
    _check_path(path)
    place = local_path(path)
    if progress is not None and not callable(progress):
        raise InvalidConfig(f"progress is called with two numbers; {type(progress).__name__} cannot be")
    return start_store(place, config, clock, medium, progress, read_only=read_only)


def _check_path(path: object) -> None:
    text = path.__fspath__() if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text or not _is_name_of_file(text):
        raise InvalidConfig(f"a store's directory is a path, not {path!r:.80}")


def _is_name_of_file(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True
