"""`repair`: mends a damaged store, and keeps everything that it replaces.

    plan_repair    verifies, and reports the steps and the lost messages       changes nothing
    repair         does the steps, with the store's lock held                  <store>.repaired-<time> beside it

Every step keeps the old bytes before it changes them, and can be repeated. A killed run leaves `flintlog/repair.json`;
the next run verifies afresh and keeps in the same directory. Before queues or index are moved away, the checkpoint
stops vouching for them and the store is marked as not cleanly stopped: an opening in between builds them from the log.

Invariant: the log loses no intact record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from flintlog.checks.finding import Finding
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.disk.media.ownership import take_after, take_all_after
from flintlog.disk.places import local_path
from flintlog.errors import DamagedStore, StoreInUse
from flintlog.format import names
from flintlog.format.queue_entry import QueueKey
from flintlog.maintenance.inspect.store_files import StoreFiles, look_at, refuse_ledger, refuse_member
from flintlog.maintenance.repair.held_store import hold
from flintlog.maintenance.repair.kept import Kept, copy_file, free_path
from flintlog.maintenance.repair.kept_codes import bring_codes_back, bring_times_back
from flintlog.maintenance.repair.log_mending import LogMending, name_of
from flintlog.maintenance.repair.lost_messages import find_lost, is_log_missing, readable_backups
from flintlog.maintenance.repair.reopen import lower_delay_offsets, settle
from flintlog.maintenance.repair.repair_check import find_harm
from flintlog.maintenance.repair.repair_plan import LostMessage, RepairPlan, Step, next_steps, plan_steps
from flintlog.maintenance.repair.right_names import names_not_to_be_given, plan_names, refuse_without_names, rename
from flintlog.maintenance.repair.undoing import Undo
from flintlog.maintenance.verify.verify import Verification, verify
from flintlog.store.dispatch.external.handshake import without_dispatcher
from flintlog.store.queues.deleted_queues import FOR_EVER, DeletedQueue, load_deleted
from flintlog.store.recovery.stop_marker import stop_vouching
from flintlog.store.runtime.jobs import Progress
from flintlog.store.runtime.note_file import NoteFile, parse_note

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig

MAX_ROUNDS: Final = 8
"""A step may uncover another finding: a file that gets its length back may end in a torn record."""

_QUEUE_FOLDERS: Final = (names.CONSUME_QUEUE, names.CONSUME_QUEUE_EXT, names.BATCH_CONSUME_QUEUE)
_DERIVED: Final = (*_QUEUE_FOLDERS, names.INDEX)
_TIMER_FILES: Final = (names.TIMER_WHEEL, names.TIMER_LOG, f"{names.CONFIG}/{names.TIMER_CHECK}")
OnStep = Callable[[str], None]


@dataclass(slots=True)
class RepairReport:
    """The steps that were done, the lost messages, the remaining findings, and where replaced files are kept."""

    steps: list[Step] = field(default_factory=list)
    lost: list[LostMessage] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    kept_in: Path | None = None
    kept_count: int = 0


class _Journal(msgspec.Struct):
    """`flintlog/repair.json`: a repair is under way.

    It says where replaced files are kept, and the sizes that were inferred while all files were in their place.
    """

    kept_in: str
    inferred: dict[str, int | bool | str | dict[str, str]]


def plan_repair(
    root: Path, config: StoreConfig | None = None, medium: Medium | None = None, *, progress: Progress | None = None
) -> RepairPlan:
    """The steps that `repair` would do now. `progress` is that of the verification."""
    root, medium = local_path(root), LocalMedium() if medium is None else medium
    refuse_member(root, medium, "repaired")
    files = look_at(root, config, medium, every_name=True)
    refuse_ledger(files, "repaired")
    seen = verify(root, config, medium=medium, progress=progress)
    return _plan(files, seen, must_settle=_load_journal(files) is not None)


def _plan(files: StoreFiles, seen: Verification, *, must_settle: bool) -> RepairPlan:
    """`must_settle`: a repair was interrupted, and it is not known how far it came."""
    restorable = readable_backups(files, seen.findings)
    naming = plan_names(files)
    steps, left = plan_steps(seen.findings, restorable=restorable, naming=naming, must_settle=must_settle)
    if is_log_missing(files) or names_not_to_be_given(files):
        steps, left = [], list(seen.findings)
    notes = [*seen.notes, *_guessed(files, steps)]
    if any(step.action == "queues" for step in steps) and files.medium.exists(files.root / names.CONSUME_QUEUE_EXT):
        notes.append("filter bitmaps of the queue extensions are not in the log; without them a filter reads messages")
    lost = tuple(find_lost(files, seen.findings))
    return RepairPlan(tuple(steps), lost, tuple(left), tuple(notes), seen.record_count - seen.damaged_count)


def _guessed(files: StoreFiles, steps: list[Step]) -> list[str]:
    """Notes about sizes of new files that follow neither from a configuration nor from another file."""
    config, journal = files.config, _load_journal(files)
    known = {**files.noted, **files.inferred.values, **({} if journal is None else journal.inferred)}
    actions = {step.action for step in steps} if files.given is None else set()
    made = (("queues", "mapped_file_size_consume_queue"), ("index", "max_hash_slot_num"), ("index", "max_index_num"))
    return [
        f"{name} is not known, and {getattr(config, name)} is taken: RocketMQ's default; if the broker has another, "
        "name its broker.conf with --config"
        for action, name in made
        if action in actions and name not in known
    ]


def repair(
    root: Path,
    config: StoreConfig | None = None,
    *,
    medium: Medium | None = None,
    on_step: OnStep | None = None,
    progress: Progress | None = None,
) -> RepairReport:
    """Repair the store in a directory; `StoreInUse` when it runs. `on_step` is called before each change.

    `progress` is that of each verification: one for each round of steps, and one at the end.
    """
    root, medium = local_path(root), LocalMedium() if medium is None else medium
    refuse_member(root, medium, "repaired")
    files = look_at(root, config, medium, every_name=True)
    refuse_ledger(files, "repaired")
    if files.is_running:
        raise StoreInUse("the store is in use", path=root, advice="stop the process that has it open")
    refuse_without_names(files)
    if is_log_missing(files):
        place = files.paths.commit_logs[0]
        advice = "bring the log back, or restore the store from a backup; its queues still name what was in it"
        raise DamagedStore("the log is missing: is its disk mounted?", path=place, advice=advice)
    report = RepairReport()
    undo = Undo(medium)
    before: Verification | None = None
    for _ in range(MAX_ROUNDS):
        files = look_at(root, config, medium, every_name=True)
        seen = verify(root, config, medium=medium, progress=progress)
        before = before or seen
        plan = _plan(files, seen, must_settle=_load_journal(files) is not None and not _is_settled(report))
        report.left = list(seen.findings)
        report.kept_count = report.kept_count if report.steps else plan.kept_count
        steps = next_steps(plan.steps, report.steps)
        if not steps:
            break
        report.steps += steps
        report.notes += [note for note in _guessed(files, report.steps) if note not in report.notes]
        report.lost += [message for message in plan.lost if message not in report.lost]
        report.kept_in = _Repairer(files, seen, plan.lost, undo, on_step or (lambda step: None)).run(steps)
    harm = None if not report.steps else _find_harm(root, config, medium, before, undo, progress)
    if harm is not None:
        _take_back(files, undo, harm)
    medium.remove(_journal_path(files))
    if report.kept_in is not None and not medium.listing(report.kept_in):
        medium.remove_tree(report.kept_in)
        report.kept_in = None
    return report


def _is_settled(report: RepairReport) -> bool:
    return any(step.action == "settle" for step in report.steps)


def _find_harm(
    root: Path,
    config: StoreConfig | None,
    medium: Medium,
    before: Verification | None,
    undo: Undo,
    progress: Progress | None,
) -> str | None:
    files = look_at(root, config, medium, every_name=True)
    after = verify(root, config, medium=medium, progress=progress)
    return None if before is None else find_harm(before, after, undo.first_moved(names.CONSUME_QUEUE), files)


def _take_back(files: StoreFiles, undo: Undo, harm: str) -> NoReturn:
    """Undo a repair that did harm, and raise."""
    with hold(files.paths, files.medium):
        undo.run()
    raise DamagedStore(
        f"the repair was undone, because it did harm: {harm}",
        path=files.root,
        advice="the store is as it was before; restore it from a backup or a replica, and report this",
    )


def _journal_path(files: StoreFiles) -> Path:
    return files.paths.own / "repair.json"


def _load_journal(files: StoreFiles) -> _Journal | None:
    """The journal of an interrupted repair."""
    data = files.small(_journal_path(files))
    found = None if data is None else parse_note(data, _Journal)
    if found is not None and found.checked is None:
        raise DamagedStore(
            f"the journal of a repair is not believed: {found.problem or 'it has no checksum'}",
            path=_journal_path(files),
            advice="remove it; the repair is then planned afresh",
        )
    return None if found is None else found.checked


class _Repairer:
    """One round: the steps of one plan."""

    def __init__(
        self, files: StoreFiles, seen: Verification, lost: Sequence[LostMessage], undo: Undo, on_step: OnStep
    ) -> None:
        self._files = files
        self._seen = seen
        self._lost = lost
        self._undo = undo
        self._medium = files.medium
        self._on_step = on_step
        root = files.root.absolute()
        place = root.with_name(f"{root.name}.repaired-{time.strftime('%Y%m%dT%H%M%S')}")
        place = free_path(place, files.medium)
        self._journal = _load_journal(files) or _Journal(str(place), dict(files.inferred.values))
        self._kept = Kept(Path(self._journal.kept_in), files.medium)
        self._log = LogMending(files, self._kept, undo, seen.gaps, on_step)
        self._is_marked = False

    def run(self, steps: Sequence[Step]) -> Path:
        with hold(self._files.paths, self._medium), without_dispatcher(self._files.paths.dispatch, self._medium):
            self._begin()
            for step in steps:
                if step.action != "settle":
                    self._on_step(step.action)
                    self._do(step)
        if any(step.action == "settle" for step in steps):
            self._finish(steps)
        return self._kept.directory

    def _finish(self, steps: Sequence[Step]) -> None:
        self._on_step("settle")
        self._settle()
        old, new = self._undo.first_moved(names.CONSUME_QUEUE), self._files.root / names.CONSUME_QUEUE
        if old is not None:
            with hold(self._files.paths, self._medium):
                bring_times_back(old, new, self._files.doubtful_levels, self._medium)
                bring_codes_back(old, new, self._seen.retagged, self._medium)
        self._on_step("offsets")
        if any(step.action == "offsets" for step in steps):
            with hold(self._files.paths, self._medium):
                # The opening has lowered the offsets of groups already.
                lower_delay_offsets(self._files.root, self._files.given, self._medium)
        self._on_step("owners")
        self._give_owners()

    def _begin(self) -> None:
        self._on_step("begin")
        self._medium.make_directories(self._kept.directory)
        take_after(self._kept.directory, self._files.root)
        self._undo.remember(self._files.root, (names.CHECKPOINT, names.ABORT, names.ABORT_BACKUP))
        self._undo.remember(self._files.root / names.CONFIG)
        self._undo.remember(self._files.paths.own)
        NoteFile(_journal_path(self._files), self._medium, _Journal).save(self._journal)

    def _do(self, step: Step) -> None:
        actions: dict[str, Callable[[Step], None]] = {
            "move-away": self._move_away,
            "resize": self._resize,
            "restore": self._restore,
            "end-mark": self._log.write_end_mark,
            "mend-place": self._log.mend,
            "stand-in": self._log.put_stand_in,
            "fill": self._log.fill,
            "cut": self._log.cut,
            "drop-timer": lambda _: self._drop(_TIMER_FILES),
            "offsets": self._keep_offsets,
            "checkpoint": lambda _: self._drop_derived(names.CHECKPOINT),
            "queues": lambda _: self._drop_derived(),
            "index": lambda _: self._drop_derived(),
            "rename": self._rename,
        }
        actions[step.action](step)

    # ------------------------------------------------------------------ files

    def _move_away(self, step: Step) -> None:
        path = Path(step.file or "")
        if self._medium.exists(path):
            self._undo.moved(path, self._kept.move(path, name_of(self._files, path)))

    def _rename(self, step: Step) -> None:
        done = rename(step, self._medium)
        if done is not None:
            self._undo.renamed(*done)

    def _resize(self, step: Step) -> None:
        path = Path(step.file or "")
        size = self._files.config.mapped_file_size_commit_log
        info = self._medium.stat(path)
        if info is None:
            return
        surplus = b""
        if info.size > size:
            raw = self._medium.open(path)
            surplus = bytes(raw.buffer[size:])
            self._kept.keep_bytes(f"{name_of(self._files, path)}.after-{size}", surplus)
            raw.close()
        self._undo.resized(path, info.size, surplus)
        working = path.with_name(f".{path.name}.flintlog-new")
        copy_file(self._medium, path, working, size=size)
        take_after(working, path)
        self._on_step("resized")
        self._medium.rename(working, path)
        self._medium.sync_directory(path.parent)

    def _restore(self, step: Step) -> None:
        path = Path(step.file or "")
        good = self._medium.read(path.with_name(path.name + names.BACKUP_SUFFIX))
        if self._medium.exists(path):
            self._kept.keep_bytes(name_of(self._files, path), self._medium.read(path))
        self._on_step("restored")
        self._medium.replace(path, good)

    def _drop(self, relative: tuple[str, ...]) -> None:
        for name in relative:
            path = self._files.root / name
            if self._medium.exists(path):
                self._on_step(f"away {name}")
                self._undo.moved(path, self._kept.move(path, name))

    def _drop_derived(self, *others: str) -> None:
        """Drop all queues and the index: without the checkpoint an opening builds all of them again."""
        self._note_given_offsets()
        self._stop_vouching()
        self._drop((*_DERIVED, *others))

    def _note_given_offsets(self) -> None:
        """Only the queues know the offsets of messages that the log has lost with its end."""
        next_offsets: dict[QueueKey, int] = {}
        for message in self._lost:
            if message.why == "short-log" and message.topic is not None and message.queue_id is not None:
                key, stop = (message.topic, message.queue_id), (message.queue_offset or 0) + message.message_count
                next_offsets[key] = max(next_offsets.get(key, 0), stop)
        load_deleted(self._files.paths.deleted, self._medium).add(
            DeletedQueue(*key, next_offset, FOR_EVER) for key, next_offset in next_offsets.items()
        )

    def _stop_vouching(self) -> None:
        if self._is_marked:
            return
        self._is_marked = True
        self._on_step("unclean")
        data = self._files.small(self._files.paths.checkpoint)
        if data is not None:
            self._kept.keep_bytes(names.CHECKPOINT, data)
        stop_vouching(self._files.paths, self._medium)

    # ------------------------------------------------------------------ the rest

    def _keep_offsets(self, step: Step) -> None:
        path = Path(step.file or "")
        self._kept.keep_bytes(name_of(self._files, path), self._medium.read(path))

    def _settle(self) -> None:
        """Open the store once: recovery builds what is missing, and writes checkpoint and stop marker."""
        files = self._files
        sizes = {**files.inferred.values, **self._journal.inferred}
        try:
            settle(files.root, files.config.with_changes(**sizes), self._medium, is_guessed=files.given is None)
        except DamagedStore as error:
            advice = f"restore it or move it away, and repair again; what was replaced is in {self._journal.kept_in}"
            what = f"the log was mended, but this keeps the store from being opened: {error.what}"
            raise DamagedStore(what, path=error.path, advice=advice) from error

    def _give_owners(self) -> None:
        """Give new files the owner of the log."""
        files = look_at(self._files.root, self._files.given, self._medium)  # files may have other names by now
        if not files.log:
            return
        file, folder = Path(files.log[0].path), Path(files.log[0].path).parent
        for name in (*_DERIVED, "flintlog"):
            take_all_after(files.root / name, file, folder)
        for name in (names.CHECKPOINT, names.LOCK):
            if self._medium.exists(files.root / name):
                take_after(files.root / name, file)
