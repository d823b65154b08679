"""The message index: from a key of a topic to the messages that have it.

Files are filled one after another; each has room for a fixed number of keys. A full file is made durable before the
next one is created, and the checkpoint then records its end time. After a crash a file is believed if it does not reach
beyond that time and a later file has keys; the time alone could not distinguish two files that were filled within one
millisecond. The other files are deleted and built again from the log.

Invariant: files are sorted by name (their time of creation, always growing), only the last one gets keys, and keys are
in log order. Key texts are not stored: an offset that is found may belong to another key with the same hash.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from flintlog.derive.index_plan import count_believed, name_after
from flintlog.disk.media.medium import FileInfo, Medium
from flintlog.errors import DiskError, FlintlogError, WrongFileSize
from flintlog.format.index_file import IndexHeader, IndexLayout, index_key
from flintlog.format.names import index_file_name, is_number
from flintlog.kernel import index_hash
from flintlog.store.index.index_file import IndexFile


class IndexService:
    """All index files of a store. Only the dispatching thread calls `put`, `roll`, `truncate`; any may query."""

    def __init__(
        self,
        directory: Path,
        medium: Medium,
        layout: IndexLayout,
        *,
        now_ms: Callable[[], int],
        on_full: Callable[[int], None] | None = None,
        max_query_count: int | None = None,
    ) -> None:
        """`on_full` gets the end time of each file that was filled and flushed.

        `max_query_count` limits every query; None leaves it to the caller.
        """
        self.directory = directory
        self.layout = layout
        self.max_query_count = max_query_count
        self.create_failure: FlintlogError | None = None
        self._medium = medium
        self._now_ms = now_ms
        self._on_full = on_full
        self._files: tuple[IndexFile, ...] = ()
        self._below: int | None = None
        self._begun: Path | None = None
        self._lock = threading.Lock()

    @property
    def files(self) -> tuple[IndexFile, ...]:
        """The files, oldest first."""
        return self._files

    @property
    def total_size(self) -> int:
        return len(self._files) * self.layout.file_size

    @property
    def last_header(self) -> IndexHeader:
        """The header of the last file; zeros when there is none."""
        files = self._files
        return files[-1].header if files else IndexHeader()

    def load(
        self, last_exit_ok: bool, index_safe_timestamp: int, lower_safe_time: Callable[[int], None] | None = None
    ) -> list[str]:
        """Find the files; after a crash, delete those that reach beyond the safe time. Returns their names.

        Before a deletion, `lower_safe_time` is called with the end time of the last file that is kept.
        """
        found = self._listed()
        empty = [info for info in found if info.size == 0]  # from a crash while a file was created
        for info in found:
            self._check_size(info)
        files = [IndexFile(self.directory / info.name, self.layout, self._medium) for info in found if info.size]
        believed = len(files) if last_exit_ok else count_believed([file.header for file in files], index_safe_timestamp)
        unsafe = files[believed:]
        for info in empty:
            self._medium.remove(self.directory / info.name)
        if unsafe and lower_safe_time is not None:
            lower_safe_time(files[believed - 1].header.end_timestamp if believed else 0)
        for file in unsafe:
            file.delete()
        if unsafe:
            # The last kept file will change. If a deleted later file reappeared, that would be believed unchanged.
            self._medium.sync_directory(self.directory)
        self._files = tuple(files[:believed])
        return [file.name for file in unsafe]

    def take_over(self) -> None:
        """Make the files durable: a killed process may have left bytes and names that are only in memory."""
        for file in self._files:
            self._medium.sync(file.path)
        if self._files:
            self._medium.sync_directory(self.directory)

    def _check_size(self, info: FileInfo) -> None:
        if info.size not in (0, self.layout.file_size):
            raise WrongFileSize(
                f"the index file has {info.size} bytes, the configured size is {self.layout.file_size}",
                path=self.directory / info.name,
                advice="open the store with the slot and index counts it was written with",
            )

    def put(self, hashes: Iterable[int], physical_offset: int, store_timestamp: int) -> bool:
        """Index the keys of one record; False when no file could be created."""
        if physical_offset < self.last_header.end_physical_offset:
            return True
        return all(self.roll() and self._files[-1].put(each, physical_offset, store_timestamp) for each in hashes)

    def fast_dispatch_buffer(self) -> tuple[memoryview | None, int, int]:
        """The arguments of a fast dispatch's `set_index`: the file that has room, if there is one."""
        files = self._files
        buffer = files[-1].buffer if files and not files[-1].is_full else None
        return buffer, self.layout.slot_count, files[-1].writable_count if buffer is not None else 0

    def roll(self) -> bool:
        """Make sure that the last file has room and space on the disk; False if not (`create_failure` is the reason).

        Raises when the full file could not be made durable. Then no next file is created.
        """
        last = self._files[-1] if self._files else None
        if last is not None and last.is_full:
            self._seal(last)  # first, because the next file's existence proves that this is whole
        try:
            if last is None or last.is_full:
                self._add_file(last)
            else:
                last.make_room()
        except FlintlogError as error:
            self.create_failure = error
            return False
        self.create_failure = None
        return True

    def _add_file(self, full: IndexFile | None) -> None:
        self._remove_begun()
        path = self.directory / self._next_name()
        self._medium.make_directories(self.directory)
        if not self._medium.exists(path):  # a file that is there already is not ours
            self._begun = path
        file = IndexFile(path, self.layout, self._medium, is_new=True)
        if full is not None:
            file.start_after(full.header)
        with self._lock:
            self._files = (*self._files, file)

    def _remove_begun(self) -> None:
        """Remove the last file that was made if an exception, as of a signal handler, kept it out of the list.

        It would block the next file, or stand as an empty one before it.
        """
        path = self._begun
        if path is not None and all(file.path != path for file in self._files) and self._medium.exists(path):
            self._medium.remove(path)
        self._begun = None

    def _seal(self, full: IndexFile) -> None:
        full.flush()
        if self._on_full is not None:
            self._on_full(full.header.end_timestamp)

    def _next_name(self) -> str:
        """The local time, or just after the last file's name when the clock has not advanced."""
        name = index_file_name(self._now_ms())
        last = self._files[-1].name if self._files else ""
        return name if name > last else name_after(last)

    def query_offsets(
        self,
        topic: str,
        key: str,
        max_count: int,
        begin: int,
        end: int,
        index_type: str | None = None,
        accepts: Callable[[int], bool] | None = None,
    ) -> list[int]:
        """The offsets of a key's hash and time, newest first; with `accepts` only those for which it returns True.

        Times are whole seconds from the file's begin.
        """
        key_hash = index_hash(index_key(topic, key, index_type))
        if self.max_query_count is not None:
            max_count = min(max_count, self.max_query_count)
        found: list[int] = []
        for file in reversed(self._files):
            try:
                file.collect(found, key_hash, max_count, begin, end, self._below, accepts)
                begins_before = 0 <= file.header.begin_timestamp < begin
            except DiskError:
                if not file.is_deleted:
                    raise
                break  # it expired meanwhile, and so did all older files
            if begins_before or len(found) >= max_count:
                break
        return found

    def follow(self, name: str, below: int) -> None:
        """Read files that another process writes: those up to `name`, and keys of records before `below`."""
        known = {file.name: file for file in self._files}
        if name not in known or self._files[-1].name != name:
            names = [info.name for info in self._listed() if info.size]
            new = (known.get(each) or IndexFile(self.directory / each, self.layout, self._medium) for each in names)
            with self._lock:
                before, self._files = self._files, tuple(file for file in new if file.name <= name)
            if before and len(self._files) > 1 and self._on_full is not None:
                self._on_full(self._files[-2].header.end_timestamp)
        self._below = below

    def stop_following(self) -> None:
        """This process writes the files again: read all of them."""
        self._below = None

    def let_go(self) -> None:
        """Unmap the files, so that another process may write them. The next access maps them again, for reading."""
        for file in self._files:
            file.close()

    def delete_expired(self, commit_log_min: int) -> int:
        """Delete the first files, but never the last, whose messages the log no longer has. Returns how many."""
        expired: list[IndexFile] = []
        for file in self._files[:-1]:
            if file.header.end_physical_offset >= commit_log_min:
                break
            expired.append(file)
        self._drop(expired)
        return len(expired)

    def truncate(self, physical_offset: int, store_time_of: Callable[[int], int]) -> None:
        """Remove the keys of records at or after an offset; delete files that get empty, except the first.

        `store_time_of` returns the store time of a record that stays, by its physical offset.
        """
        while self._files:
            file = self._files[-1]
            count = file.count_below(physical_offset)
            if count > 1 or len(self._files) == 1:
                self._roll_back(file, count, store_time_of)
                return
            self._drop([file])

    def roll_back(self, name: str, count: int, store_time_of: Callable[[int], int]) -> None:
        """Roll the index back to a file and its index count, as they were published."""
        while self._files and self._files[-1].name > name:
            self._drop([self._files[-1]])
        if self._files and self._files[-1].name == name:
            self._roll_back(self._files[-1], count, store_time_of)

    def _roll_back(self, file: IndexFile, count: int, store_time_of: Callable[[int], int]) -> None:
        if count >= file.header.next_entry:
            return
        previous = self._files[-2].header if len(self._files) > 1 else None
        last = file.last_offset_at(count)
        file.roll_back(count, 0 if last is None else store_time_of(last), previous)

    def _drop(self, files: Iterable[IndexFile]) -> None:
        dropped = list(files)
        with self._lock:
            self._files = tuple(file for file in self._files if file not in dropped)
        for file in dropped:
            file.delete()

    def flush(self) -> None:
        """Make every written file durable."""
        for file in self._files:
            file.flush()

    def shut_down(self) -> None:
        """Flush and unmap."""
        self._remove_begun()
        self.flush()
        for file in self._files:
            file.close()

    def _listed(self) -> list[FileInfo]:
        return [info for info in self._medium.listing(self.directory) if not info.is_directory and is_number(info.name)]

    def destroy(self) -> None:
        """Delete every file."""
        self._drop(self._files)
        self._medium.remove_tree(self.directory)
