"""The options of the Spark sink, checked before anything is written.

As for the source (`options.py`), names may be in any case, and an unknown name or an invalid value raises one clear
error that names the option.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from flintlog.disk.places import absolute, local_path
from flintlog.errors import FlintlogError, InvalidConfig, InvalidTopic
from flintlog.format.topics import encode_topic
from flintlog.pipeline.reading.options import OF_SPARK
from flintlog.store.options.option import did_you_mean
from flintlog.store.options.store_config import StoreConfig


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a sink."""

    path: str
    topic: str | None = None
    """The topic of rows that have none of their own."""
    writer_id: str | None = None
    batch_id: int | None = None
    config: str | None = None
    """A file with the store's options; without it, sizes are read from the existing files."""
    checkpoint: str | None = None
    """Spark's own option: where a streaming query keeps its progress."""

    def store_config(self) -> StoreConfig | None:
        """The store's options, if they were given."""
        return None if self.config is None else StoreConfig.load(self.config)


def parse_sink_options(given: Mapping[str, str], *, is_streaming: bool) -> SinkOptions:
    """The options that Spark passes to a sink.

    >>> parse_sink_options({"path": "/data/store", "writerid": "daily", "batchId": "7"}, is_streaming=False).batch_id
    7
    """
    values: dict[str, object] = {}
    known = {name.lower(): name for name in _OPTIONS}
    for name, text in given.items():
        option = known.get(name.lower())
        if option is None and name.lower() in OF_SPARK:
            continue
        if option is None:
            advice = did_you_mean(name, _OPTIONS) or f"there are: {', '.join(_OPTIONS)}"
            raise InvalidConfig(f"there is no option {name} of the sink", advice=advice)
        field, parse = _OPTIONS[option]
        try:
            values[field] = parse(str(text))
        except ValueError as error:
            raise InvalidConfig(f"option {option} = {str(text)[:200]!r}", advice=str(error)) from None
    if not values.get("path"):
        raise InvalidConfig(
            "no path was given", advice="save(path) or option path: a store directory on shared storage"
        )
    asked = SinkOptions(**values)  # type: ignore[arg-type]  # each parser gives its field's type
    _check_batch(asked, is_streaming)
    return asked


def _check_batch(asked: SinkOptions, is_streaming: bool) -> None:
    if is_streaming and asked.batch_id is not None:
        raise InvalidConfig("option batchId is not for streams", advice="Spark counts their batches itself")
    if is_streaming and asked.writer_id is None and asked.checkpoint is None:
        raise InvalidConfig(
            "a stream needs option checkpointLocation or option writerId",
            advice="by it a batch that comes again after a restart is known",
        )
    if not is_streaming and (asked.writer_id is None) != (asked.batch_id is None):
        raise InvalidConfig(
            "options writerId and batchId belong together", advice="a batch of the same two ids is written once"
        )


def _path(text: str) -> str:
    return str(local_path(text).absolute()) if text else text


def _text(text: str) -> str:
    if not text:
        raise ValueError("a text that is not empty")
    return text


def _topic(text: str) -> str:
    try:
        encode_topic(text)
    except InvalidTopic as error:
        raise ValueError(str(error)) from None
    return text


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 63:
        raise ValueError("a whole number from 0 on")
    return int(text)


def _config(text: str) -> str:
    try:
        StoreConfig.load(text)
    except FlintlogError as error:
        raise ValueError(str(error)) from None
    return absolute(text)


_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "path": ("path", _path),
    "topic": ("topic", _topic),
    "writerId": ("writer_id", _text),
    "batchId": ("batch_id", _number),
    "config": ("config", _config),
    "checkpointLocation": ("checkpoint", _text),
}
