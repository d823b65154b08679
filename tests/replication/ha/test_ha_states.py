"""Master and slave without sockets: who sends what, what is refused, what is kept."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog import Message, StoreConfig, open_store
from flintlog.errors import FormatError
from flintlog.format.record import encode_blank
from flintlog.kernel import Encoder, Tail
from flintlog.replication.ha import feed as master
from flintlog.replication.ha import follower as slave
from flintlog.replication.ha.wire import (
    MAX_DATA_BYTES,
    Frame,
    FrameReader,
    ReportReader,
    encode_frame,
    encode_report,
)

Golden = Callable[[str], Path]

SEGMENT = 4096
OPTIONS = master.FeedOptions(transfer_bytes=1000)


def log_bytes(segment_count: int) -> bytes:
    """A log whose segments are closed by blanks, the last one half full."""
    encoder = Encoder(Message, store_host="127.0.0.1:10911", max_message_size=SEGMENT)
    log = bytearray()
    number = 0
    for index in range(segment_count):
        buffer = bytearray(SEGMENT)
        tail = Tail(buffer, index * SEGMENT)
        while encoder.append(tail, Message("orders", b"%04d" % number * (number % 40)), number, 1_700_000_000_000):
            number += 1
            if index == segment_count - 1 and tail.position > SEGMENT // 2:
                return bytes(log) + bytes(buffer[: tail.position])
        room = SEGMENT - tail.position
        log += bytes(buffer[: tail.position]) + encode_blank(room).ljust(room, b"\0")
    return bytes(log)


LOG = log_bytes(3)
BOUNDS = master.LogBounds(0, len(LOG), SEGMENT)


# The wire


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.binary(max_size=30)), max_size=5), st.integers(1, 20))
def test_frames_come_out_as_they_went_in(frames: list[tuple[int, bytes]], step: int) -> None:
    stream = b"".join(encode_frame(offset, data) for offset, data in frames)
    reader = FrameReader()
    found = [frame for at in range(0, len(stream), step) for frame in reader.feed(stream[at : at + step])]
    assert found == [Frame(*frame) for frame in frames]


@pytest.mark.parametrize("size", [-1, MAX_DATA_BYTES + 1, (1 << 31) - 1])
def test_a_frame_of_an_impossible_size_is_refused_before_it_is_read(size: int) -> None:
    with pytest.raises(FormatError):
        FrameReader().feed(bytes(8) + size.to_bytes(4, "big", signed=True))


def test_of_many_reports_the_last_counts_however_they_are_cut() -> None:
    reader = ReportReader()
    stream = encode_report(1) + encode_report(2) + encode_report(3)
    assert reader.feed(stream[:20]) == 2
    assert reader.feed(stream[20:]) == 3
    assert reader.feed(b"") is None


# The master


def feed_from(report: int, **changed: bool) -> list[master.Action]:
    feed = master.ReplicaFeed(master.FeedOptions(transfer_bytes=1000, **changed), now_ms=0)
    return feed.step(master.Reported(report), BOUNDS, 0)


def test_nothing_is_sent_before_the_first_report() -> None:
    assert master.ReplicaFeed(OPTIONS, 0).step(master.Tick(), BOUNDS, 10) == []


def test_an_empty_slave_is_served_from_where_the_log_begins() -> None:
    assert feed_from(0) == [master.Send(0, 1000)]
    assert feed_from(0, from_last_file=True) == [master.Send(2 * SEGMENT, 1000)]


def test_a_frame_never_crosses_a_file() -> None:
    feed = master.ReplicaFeed(OPTIONS, 0)
    sent = feed.step(master.Reported(0), BOUNDS, 0)
    while actions := feed.step(master.Tick(), BOUNDS, 0):
        sent += actions
    ranges = [(action.offset, action.offset + action.size) for action in sent if isinstance(action, master.Send)]
    assert ranges[0][0] == 0 and ranges[-1][1] == len(LOG)
    assert all(left[1] == right[0] for left, right in itertools.pairwise(ranges))
    assert all(start // SEGMENT == (stop - 1) // SEGMENT for start, stop in ranges)


@pytest.mark.parametrize("report", [len(LOG) + 1, 1 << 62, -1])
def test_a_report_beyond_our_end_is_refused_and_acknowledges_nothing(report: int) -> None:
    feed = master.ReplicaFeed(OPTIONS, 0)
    actions = feed.step(master.Reported(report), BOUNDS, 0)
    assert [type(action) for action in actions] == [master.Close]
    assert feed.acknowledged == 0
    assert feed.step(master.Reported(100), BOUNDS, 0) == []


def test_a_report_beyond_what_was_sent_is_refused() -> None:
    feed = master.ReplicaFeed(OPTIONS, 0)
    feed.step(master.Reported(0), BOUNDS, 0)
    assert [type(action) for action in feed.step(master.Reported(1001), BOUNDS, 0)] == [master.Close]


def test_an_acknowledgement_never_goes_back() -> None:
    feed = master.ReplicaFeed(OPTIONS, 0)
    assert feed.step(master.Reported(500), BOUNDS, 0)[0] == master.Acknowledged(500)
    assert master.Acknowledged(400) not in feed.step(master.Reported(400), BOUNDS, 0)
    assert feed.acknowledged == 500


def test_a_slave_that_needs_deleted_bytes_is_closed_with_that_reason() -> None:
    bounds = master.LogBounds(SEGMENT, len(LOG), SEGMENT)
    actions = master.ReplicaFeed(OPTIONS, 0).step(master.Reported(100), bounds, 0)
    assert isinstance(actions[0], master.Close) and "needs a copy" in actions[0].reason
    feed = master.ReplicaFeed(OPTIONS, 0)
    feed.step(master.Reported(0), BOUNDS, 0)
    assert isinstance(feed.step(master.Tick(), bounds, 0)[0], master.Close)


def test_heartbeats_and_silence() -> None:
    feed = master.ReplicaFeed(OPTIONS, 0)
    feed.step(master.Reported(len(LOG)), BOUNDS, 0)
    assert feed.step(master.Tick(), BOUNDS, 4_999) == []
    assert feed.step(master.Tick(), BOUNDS, 5_000) == [master.Send(len(LOG), 0)]
    assert feed.step(master.Tick(), BOUNDS, 9_000) == []
    assert isinstance(feed.step(master.Tick(), BOUNDS, 20_001)[0], master.Close)


# The slave


def follower(log_end: int = -1) -> slave.Follower:
    made = slave.Follower(slave.FollowOptions(SEGMENT), now_ms=0)
    assert made.step(slave.Connected(log_end), 0) == [slave.Report(max(0, log_end))]
    return made


def frames_of(data: bytes, start: int, cuts: list[int]) -> list[Frame]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [Frame(start + a, data[a:b]) for a, b in itertools.pairwise(places) if a < b]


@given(st.lists(st.integers(0, 1 << 20), max_size=12), st.sampled_from([0, SEGMENT, 2 * SEGMENT]))
def test_whatever_the_cuts_only_whole_records_are_written_and_all_of_them(cuts: list[int], start: int) -> None:
    slave_state = follower(start or -1)
    written = bytearray(LOG[:start])
    for frame in frames_of(LOG[start:], start, cuts):
        for action in slave_state.step(slave.Received((frame,)), 0):
            assert isinstance(action, slave.Append)
            assert action.offset == len(written)
            written += action.data
            assert slave_state.step(slave.Appended(len(written)), 0) == [slave.Report(len(written))]
    assert bytes(written) == LOG


@pytest.mark.parametrize("offset", [0, SEGMENT + 8, len(LOG) + 1])
def test_a_frame_that_does_not_follow_is_refused(offset: int) -> None:
    actions = follower(SEGMENT).step(slave.Received((Frame(offset, LOG[:100]),)), 0)
    assert [type(action) for action in actions] == [slave.Close]


@given(st.integers(0, len(LOG) - 1), st.integers(0, 7))
def test_a_flipped_bit_never_gets_past_the_record_before_it(place: int, bit: int) -> None:
    data = bytearray(LOG)
    data[place] ^= 1 << bit
    written = b""
    slave_state = follower()
    for frame in frames_of(bytes(data), 0, list(range(0, len(LOG), 700))):
        for action in slave_state.step(slave.Received((frame,)), 0):
            written += action.data if isinstance(action, slave.Append) else b""
    if len(written) > place:
        assert written == bytes(data), "only where nothing checks it: properties, hosts, times, filler"


def test_records_of_another_place_are_refused() -> None:
    shifted = LOG[SEGMENT:]
    actions = follower().step(slave.Received((Frame(0, shifted[:500]),)), 0)
    assert [type(action) for action in actions] == [slave.Close]


def test_a_slave_reports_from_time_to_time_and_gives_up_on_silence() -> None:
    slave_state = follower(SEGMENT)
    assert slave_state.step(slave.Tick(), 4_999) == []
    assert slave_state.step(slave.Tick(), 5_000) == [slave.Report(SEGMENT)]
    slave_state.step(slave.Received((Frame(SEGMENT, b""),)), 15_000)
    assert slave_state.step(slave.Tick(), 35_000) == [slave.Report(SEGMENT)]
    assert isinstance(slave_state.step(slave.Tick(), 35_001)[0], slave.Close)


# What RocketMQ sent


def test_the_bytes_that_a_real_master_sent_become_its_log(golden: Golden, tmp_path: Path) -> None:
    recorded = golden("ha")
    config = StoreConfig.from_rocketmq(json.loads((recorded / "config.json").read_text())["set"])
    stream = (recorded / "wire" / "m2s.bin").read_bytes()
    reports: list[int] = []
    with open_store(tmp_path / "slave", config.with_changes(broker_role="SLAVE")) as store:
        raw = store.replication.raw_log
        follower = slave.Follower(slave.FollowOptions(raw.segment_size), 0)
        reader = FrameReader()
        actions = follower.step(slave.Connected(-1), 0)
        for at in range(0, len(stream), 7001):
            actions += follower.step(slave.Received(tuple(reader.feed(stream[at : at + 7001]))), 0)
            while actions:
                action = actions.pop(0)
                if isinstance(action, slave.Append):
                    end = raw.append(action.offset, action.data)
                    actions += follower.step(slave.Appended(end), 0)
                else:
                    assert isinstance(action, slave.Report), action
                    reports.append(action.log_end)
        assert store.queues()
    (theirs,) = (recorded / "slave" / "commitlog").iterdir()
    assert (tmp_path / "slave" / "commitlog" / theirs.name).read_bytes() == theirs.read_bytes()
    reported = (recorded / "wire" / "s2m.bin").read_bytes()
    assert reports[0] == int.from_bytes(reported[:8], "big")
    assert reports[-1] == int.from_bytes(reported[-8:], "big")
    for queue in sorted((recorded / "slave" / "consumequeue").rglob("0" * 20)):
        ours = (tmp_path / "slave" / queue.relative_to(recorded / "slave")).read_bytes()
        written = queue.read_bytes().rstrip(b"\0")  # it was stopped before it had dispatched everything
        masters = (recorded / "master" / queue.relative_to(recorded / "slave")).read_bytes()
        assert ours.startswith(written)
        assert ours[len(written) :] == masters[len(written) :]
