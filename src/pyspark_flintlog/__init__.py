"""Lets Spark find flintlog: it looks for packages of this kind of name, and takes their `DefaultSource`."""

from __future__ import annotations

from flintlog.pipeline.source import FlintlogSource as DefaultSource

__all__ = ["DefaultSource"]
