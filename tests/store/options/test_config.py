"""StoreConfig: what it accepts, what it refuses and how it says so."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest

from flintlog.errors import InvalidConfig
from flintlog.store.options import ignored_options
from flintlog.store.options.config_file import parse_properties_file
from flintlog.store.options.option import INT_MAX, render_page
from flintlog.store.options.rocketmq_options import ignored_names, rocketmq_names
from flintlog.store.options.store_config import OPTIONS, StoreConfig

DECLARING = ("store_config.py", "store_options.py", "service_options.py", "option.py")


def test_default_config_waits_for_the_disk() -> None:
    assert StoreConfig().flush == "sync"


def test_rocketmq_defaults_do_not_wait_for_the_disk() -> None:
    assert StoreConfig.from_rocketmq({}).flush == "async"
    assert StoreConfig.from_rocketmq({"flushDiskType": "SYNC_FLUSH"}).flush == "sync"


def test_rocketmq_defaults_are_ours_in_everything_else() -> None:
    theirs = StoreConfig.from_rocketmq({}).with_changes(flush="sync", retention="off")
    limits = {name for name in OPTIONS if name.startswith("max_transfer_")} | {"max_msgs_num_batch"}
    assert {name for name in OPTIONS if getattr(theirs, name) != getattr(StoreConfig(), name)} == limits
    assert len(limits) == 5 and theirs.with_changes(**dict.fromkeys(limits)) == StoreConfig()


def test_default_config_keeps_everything_and_rocketmq_does_not() -> None:
    assert StoreConfig().retention == "off"
    assert StoreConfig(mapped_file_size_commit_log=1 << 20, protect_unconsumed=True).retention == "off"
    assert StoreConfig.from_rocketmq({}).retention == "on"


@pytest.mark.parametrize("name", ["file_reserved_time", "disk_max_used_space_ratio", "disk_space_warning_level_ratio"])
def test_an_option_of_retention_turns_retention_on(name: str) -> None:
    default = getattr(StoreConfig(), name)
    assert StoreConfig(**{name: default}).retention == "on"
    assert StoreConfig().with_changes(**{name: default}).retention == "on"
    assert StoreConfig(**{name: default, "retention": "off"}).retention == "off"
    assert StoreConfig(**{name: default}).with_changes(flush="async").retention == "on"


def test_every_default_equals_what_the_jars_report() -> None:
    data = json.loads(
        (Path(__file__).parents[3] / "src/flintlog/store/options/rocketmq_options.json").read_text("utf-8")
    )
    reported = {**data["BrokerConfig"], **data["MessageStoreConfig"]}
    theirs = StoreConfig.from_rocketmq({})
    compared = 0
    for option in OPTIONS.values():
        if option.rocketmq is None:
            continue
        text = reported[option.rocketmq][1]
        value = getattr(theirs, option.name)
        if text is None:
            assert value is None, option.name
            continue
        default = str(value).lower() if isinstance(value, bool) else str(value)
        assert default == text, option.name
        compared += 1
    assert compared > 90


def test_every_option_of_the_table_is_a_name_of_rocketmq_once() -> None:
    named = [option.rocketmq for option in OPTIONS.values() if option.rocketmq is not None]
    assert len(named) == len(set(named))
    assert set(named) <= rocketmq_names().keys()
    assert not ignored_names(OPTIONS).keys() & set(named)


def test_every_option_has_a_sentence_a_group_and_a_default_within_its_bounds() -> None:
    for option in OPTIONS.values():
        assert option.about.endswith("."), option.name
        assert option.group, option.name
        assert option.complaint(option.default) is None, option.name
        if option.kind == "int":
            assert option.unit, option.name


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("max_message_size", 0, "the least is 1"),
        ("max_message_size", INT_MAX + 1, f"the most is {INT_MAX}"),
        ("max_message_size", True, "expected int"),
        ("max_message_size", "4096", "expected int"),
        ("max_message_size", None, "expected int"),
        ("message_index_enable", 1, "expected bool"),
        ("logical_disk_space_clean_forcibly_threshold", 1.5, "the most is 1.0"),
        ("logical_disk_space_clean_forcibly_threshold", float("nan"), "the least is 0.0"),
        ("flush", "often", "'sync', 'async'"),
        ("broker_role", "MASTER", "'ASYNC_MASTER', 'SYNC_MASTER', 'SLAVE'"),
        ("mapped_file_size_consume_queue", 0, "the least is 1"),
        ("timer_precision_ms", 0, "the least is 1"),
        ("services", {"delay"}, "expected schedule, timer, transaction"),
        ("services", "timer", "expected set of str"),
        ("services", [["timer"]], "expected set of str"),
        ("topic_queue_types", {"t": "FastCQ"}, "expected BatchCQ, SimpleCQ"),
        ("topic_queue_types", [("t", "BatchCQ")], "expected mapping of str"),
        ("topic_queue_types", {"t": 3}, "expected mapping of str"),
        ("message_delay_level", "1s 5x", "expected a number with s, m, h or d"),
        ("message_delay_level", "s", "expected a number with s, m, h or d"),
        ("message_delay_level", "1s 99999999999999999999d", "a hundred years at most"),
        ("message_delay_level", "36601d", "a hundred years at most"),
        ("message_delay_level", "9" * 5000 + "s", "a hundred years at most"),
        ("delete_when", "24", "expected hours from 0 to 23"),
        ("delete_when", "04,16", "expected hours from 0 to 23"),
        ("store_host", "localhost:10911", "expected ip:port or [ipv6]:port"),
        ("store_host", "127.0.0.1", "expected ip:port or [ipv6]:port"),
        ("store_host", "127.0.0.1:65536", "expected ip:port or [ipv6]:port"),
        ("store_host", "::1:10911", "expected ip:port or [ipv6]:port"),
        ("store_host", "[127.0.0.1]:10911", "expected ip:port or [ipv6]:port"),
    ],
)
def test_refuses_a_value_and_names_option_value_and_bound(name: str, value: object, bound: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        StoreConfig().with_changes(**{name: value})
    text = str(caught.value)
    assert name in text
    assert bound in text
    shown = value if isinstance(value, str) and " " not in value else None
    assert shown is None or repr(shown) in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_message_size", 1),
        ("max_message_size", INT_MAX),
        ("logical_disk_space_clean_forcibly_threshold", 1),
        ("ha_master_address", None),
        ("store_host", "[::1]:10911"),
        ("store_host", "0.0.0.0:0"),
        ("delete_when", "00;4;23"),
    ],
)
def test_accepts_the_ends_of_the_bounds(name: str, value: object) -> None:
    assert getattr(StoreConfig().with_changes(**{name: value}), name) == value


def test_refuses_an_unknown_option_and_says_which_was_meant() -> None:
    with pytest.raises(InvalidConfig, match=r"no option flush_intervall_commit_log .*flush_interval_commit_log\?"):
        StoreConfig(flush_intervall_commit_log=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidConfig, match=r"no option colour$"):
        StoreConfig().with_changes(colour="red")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("enable_dleger_commit_log", "enable_dledger_commit_log"),
        ("dleger_self_id", "dledger_self_id"),
        ("warm_maped_file_enable", "warm_mapped_file_enable"),
        ("mapper_file_size_batch_consume_queue", "mapped_file_size_batch_consume_queue"),
        ("os_page_cache_busy_time_out_mills", "os_page_cache_busy_time_out_millis"),
        ("read_un_committed", "read_uncommitted"),
        ("redelete_hanged_file_interval", "redelete_hung_file_interval"),
    ],
)
def test_rocketmqs_misspellings_are_set_right_in_our_names(wrong: str, right: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"no option {wrong} \(did you mean {right}\?\)"):
        StoreConfig().with_changes(**{wrong: 1})
    assert right in OPTIONS


def test_refuses_a_name_that_rocketmq_does_not_have() -> None:
    with pytest.raises(InvalidConfig, match=r"no option mapedFileSizeCommitLog .*mappedFileSizeCommitLog\?"):
        StoreConfig.from_rocketmq({"mapedFileSizeCommitLog": "1"})
    with pytest.raises(InvalidConfig, match=r"mapped_file_size_commit_log is our name .* RocketMQ's is mappedFileS"):
        StoreConfig.from_rocketmq({"mapped_file_size_commit_log": "1"})
    with pytest.raises(InvalidConfig, match=r"one of ours: StoreConfig\(flush="):
        StoreConfig.from_rocketmq({"flush": "sync"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("maxMessageSize", "4k"),
        ("maxMessageSize", "1_000"),
        ("maxMessageSize", ""),
        ("maxMessageSize", "٣"),
        ("messageIndexEnable", "yes"),
        ("flushDiskType", "sync"),
        ("useReentrantLockWhenPutMessage", "1"),
        ("brokerRole", "async_master"),
        ("logicalDiskSpaceCleanForciblyThreshold", "x"),
        ("listenPort", "x"),
    ],
)
def test_refuses_text_that_is_not_of_the_options_kind(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig):
        StoreConfig.from_rocketmq({name: text})


def test_reads_rocketmq_names_and_text_values() -> None:
    config = StoreConfig.from_rocketmq(
        {
            "mappedFileSizeCommitLog": " 1048576 ",
            "maxHashSlotNum": "500",
            "messageIndexEnable": "FALSE",
            "logicalDiskSpaceCleanForciblyThreshold": "0.5",
            "brokerRole": "SLAVE",
            "haMasterAddress": "10.0.0.1:10912",
            "useReentrantLockWhenPutMessage": "false",
            "enableDLegerCommitLog": "true",
            "dLegerGroup": "g",
            "destroyMapedFileIntervalForcibly": "7",
        }
    )
    assert config.mapped_file_size_commit_log == 1 << 20
    assert config.max_hash_slot_num == 500
    assert config.message_index_enable is False
    assert config.logical_disk_space_clean_forcibly_threshold == 0.5
    assert (config.broker_role, config.ha_master_address) == ("SLAVE", "10.0.0.1:10912")
    assert config.put_lock == "spinning"
    assert (config.enable_dledger_commit_log, config.dledger_group) == (True, "g")
    assert config.destroy_mapped_file_interval_forcibly == 7
    assert config.ignored == {}


def test_lists_what_has_no_effect_with_its_reason() -> None:
    config = StoreConfig.from_rocketmq(
        {
            "namesrvAddr": "a:9876",
            "brokerName": "b",
            "serverWorkerThreads": "8",
            "useTLS": "false",
            "storePathRootDir": "store",
            "timerRocksDBEnable": "true",
        }
    )
    assert config.ignored == {
        "brokerName": "has no effect here because it is about a broker around its store",
        "namesrvAddr": "has no effect here because it is about a broker around its store",
        "serverWorkerThreads": "has no effect here because it is about the network of a broker",
        "storePathRootDir": "has no effect here because the directory of a store is named where it is opened",
        "timerRocksDBEnable": "has no effect here because nothing is kept in RocksDB",
        "useTLS": "has no effect here because it is about the network of a broker",
    }


def test_every_ignored_name_of_a_store_has_a_reason_and_no_other_name_has_one() -> None:
    ignored = ignored_names(OPTIONS)
    of_store = {name for name in ignored if rocketmq_names()[name].owner == "MessageStoreConfig"}
    assert {name for name in of_store if "rocksdb" not in name.lower()} == ignored_options._REASONS.keys()
    assert len(of_store) > 110
    for reason in ignored.values():
        assert reason.startswith("has no effect here because ") and not reason.endswith(".")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("topicQueueLockNum", "many"),
        ("topicQueueLockNum", "2147483648"),
        ("cleanSwapedMapInterval", "9223372036854775808"),
        ("enableCompaction", "yes"),
        ("readAheadCacheSizeThresholdRate", "half"),
        ("brokerId", ""),
    ],
)
def test_an_ignored_option_must_still_have_rocketmqs_type(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"option {name} = '{text}' \(RocketMQ expects "):
        StoreConfig.from_rocketmq({name: text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cleanSwapedMapInterval", "9223372036854775807"),
        ("brokerId", " -1 "),
        ("readAheadCacheSizeThresholdRate", "0.5"),
        ("namesrvAddr", ""),
        ("metricsExporterType", "PROM"),
        ("metricsExporterType", "DISABLE"),
    ],
)
def test_an_ignored_option_takes_every_value_of_rocketmq(name: str, text: str) -> None:
    assert list(StoreConfig.from_rocketmq({name: text}).ignored) == [name]


def test_every_default_of_rocketmq_is_taken() -> None:
    values = {name: known.default for name, known in rocketmq_names().items() if known.default is not None}
    assert StoreConfig.from_rocketmq(values).ignored.keys() == ignored_names(OPTIONS).keys() & values.keys()


@pytest.mark.parametrize("name", ["store_type", "clean_swaped_map_interval", "storeType"])
def test_an_option_without_effect_is_refused_under_our_name_with_its_reason(name: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"no option {name} \(RocketMQ's \w+ has no effect here because "):
        StoreConfig().with_changes(**{name: "default"})


def test_an_option_without_effect_in_a_file_is_refused_under_our_name_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "store.properties"
    path.write_text("put_message_timeout=8000\n", "utf-8")
    with pytest.raises(InvalidConfig, match=r"RocketMQ's putMessageTimeout has no effect here because "):
        StoreConfig.load(path)


@pytest.mark.parametrize(
    ("values", "host"),
    [
        ({"brokerIP1": "10.1.2.3"}, "10.1.2.3:10911"),
        ({"listenPort": "30911"}, "127.0.0.1:30911"),
        ({"brokerIP1": "fe80::1", "listenPort": "1"}, "[fe80::1]:1"),
    ],
)
def test_store_host_is_made_of_the_brokers_address_and_port(values: dict[str, str], host: str) -> None:
    assert StoreConfig.from_rocketmq(values).store_host == host


@pytest.mark.parametrize(("asked", "used"), [(1, 20), (20, 20), (21, 40), (40_000, 40_000), (6_000_001, 6_000_020)])
def test_consume_queue_files_hold_whole_entries(asked: int, used: int) -> None:
    assert StoreConfig(mapped_file_size_consume_queue=asked).mapped_file_size_consume_queue == used


@pytest.mark.parametrize(("asked", "used"), [(1, 100), (199, 100), (200, 200), (999, 500), (1000, 1000), (5000, 1000)])
def test_timer_precision_is_lowered_to_one_that_the_wheel_has(asked: int, used: int) -> None:
    assert StoreConfig(timer_precision_ms=asked).timer_precision_ms == used


def test_delay_levels_in_milliseconds() -> None:
    assert StoreConfig(message_delay_level="1s 5m  2h 1d").delay_levels_ms == (1000, 300_000, 7_200_000, 86_400_000)
    assert len(StoreConfig().delay_levels_ms) == 18


def test_config_is_a_value() -> None:
    mine = {"t": "BatchCQ"}
    config = StoreConfig(services={"timer"}, topic_queue_types=mine)
    mine["u"] = "BatchCQ"
    assert config.services == frozenset({"timer"})
    assert config.topic_queue_types == {"t": "BatchCQ"}
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(AttributeError):
        config.flush = "async"  # type: ignore[misc]


def test_its_text_shows_what_differs_from_the_defaults() -> None:
    assert repr(StoreConfig()) == "StoreConfig()"
    config = StoreConfig(services={"timer", "schedule"}, flush="async", topic_queue_types={"t": "BatchCQ"})
    assert repr(config).count("=") == 3 and "services={'schedule', 'timer'}" in repr(config)
    for each in (config, StoreConfig.from_rocketmq({"fileReservedTime": "48", "namesrvAddr": "a:1"})):
        assert eval(repr(each)) == each


def test_changes_leave_the_original_and_are_checked() -> None:
    config = StoreConfig.from_rocketmq({"namesrvAddr": "a:1"})
    changed = config.with_changes(max_message_size=9)
    assert (config.max_message_size, changed.max_message_size) == (4 << 20, 9)
    assert list(changed.ignored) == ["namesrvAddr"]


def test_loads_a_broker_conf(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("# c\n! c\nbrokerName = a\nflushDiskType=SYNC_FLUSH\ndeleteWhen:04\nmaxMessageSize 77\n", "utf-8")
    config = StoreConfig.load(path)
    assert (config.flush, config.max_message_size, list(config.ignored)) == ("sync", 77, ["brokerName"])


def test_a_file_with_rocketmq_names_starts_from_rocketmq_defaults(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("maxMessageSize=77\n", "utf-8")
    assert StoreConfig.load(path).flush == "async"


def test_a_file_with_our_names_starts_from_our_defaults(tmp_path: Path) -> None:
    path = tmp_path / "store.properties"
    path.write_text("max_message_size=77\nservices=timer, schedule\ntopic_queue_types=t=BatchCQ\n", "utf-8")
    config = StoreConfig.load(path)
    assert (config.flush, config.max_message_size) == ("sync", 77)
    assert config.services == {"timer", "schedule"}
    assert config.topic_queue_types == {"t": "BatchCQ"}


def test_loads_json_with_both_kinds_of_names(tmp_path: Path) -> None:
    path = tmp_path / "store.json"
    values = {
        "maxMessageSize": 77,
        "messageIndexEnable": False,
        "put_lock": "spinning",
        "topic_queue_types": {"t": "BatchCQ"},
    }
    path.write_text(json.dumps(values), "utf-8")
    config = StoreConfig.load(path)
    assert (config.flush, config.max_message_size, config.message_index_enable) == ("async", 77, False)
    assert (config.put_lock, config.topic_queue_types) == ("spinning", {"t": "BatchCQ"})


def test_loads_toml(tmp_path: Path) -> None:
    path = tmp_path / "store.toml"
    path.write_text('flush = "async"\nservices = ["timer"]\nmax_message_size = 77\n', "utf-8")
    config = StoreConfig.load(str(path))
    assert (config.flush, config.services, config.max_message_size) == ("async", frozenset({"timer"}), 77)


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.json", "{", "cannot parse"),
        ("a.json", "[]", "cannot parse"),
        ("a.toml", "x =", "cannot parse"),
        ("a.conf", "maxMessageSize=0", "the least is 1"),
        ("a.conf", "max_message_size=x", "expected int"),
        ("a.conf", "colour=red", "no option colour"),
        ("a.toml", "[maxMessageSize]\nx=1", "expected int"),
    ],
)
def test_a_bad_file_is_named_in_the_error(tmp_path: Path, name: str, text: str, what: str) -> None:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    with pytest.raises(InvalidConfig, match=what) as caught:
        StoreConfig.load(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot read .*none\.conf"):
        StoreConfig.load(tmp_path / "none.conf")


def test_properties_as_java_reads_them() -> None:
    text = "a=1\n  b : x\\=y \nc\\ d=two \\\n   lines\n\\u0065=\\t.\nempty\nurl=http://h:1/?a=b\n"
    assert parse_properties_file(text) == {
        "a": "1",
        "b": "x=y",
        "c d": "two lines",
        "e": ".",
        "empty": "",
        "url": "http://h:1/?a=b",
    }


def test_every_option_is_read_somewhere() -> None:
    package = Path(__file__).parents[3] / "src" / "flintlog"
    code = "".join(path.read_text("utf-8") for path in package.rglob("*.py") if path.name not in DECLARING)
    read_here = {"message_delay_level"}  # as `delay_levels_ms`
    read = {name for name in OPTIONS if re.search(rf"config\.{name}\b", code)} | read_here
    assert set(OPTIONS) == read


def test_the_page_of_options_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "options.md"
    assert page.read_text("utf-8") == render_page(OPTIONS, ignored_names(OPTIONS)), "run `make docs`"


def test_the_page_names_every_option_and_every_ignored_name() -> None:
    page = render_page(OPTIONS, ignored_names(OPTIONS))
    ours, _, theirs = page.partition("## RocketMQ's options without effect")
    rows = [line.split("|")[1].strip().strip("`") for line in ours.splitlines() if line.startswith("| `")]
    assert rows == list(OPTIONS)
    assert rows[0] == "flush"
    for name in ignored_names(OPTIONS):
        assert f"`{name}`" in theirs


def test_an_escaped_backslash_at_the_end_of_a_line_does_not_continue_it() -> None:
    assert parse_properties_file("path=C:\\\\\nb=2\n") == {"path": "C:\\", "b": "2"}
