"""The page of options; the store declares them and renders the page itself."""

from __future__ import annotations

from flintlog.store.options.option import render_page
from flintlog.store.options.rocketmq_options import ignored_names
from flintlog.store.options.store_config import OPTIONS


def render() -> str:
    """The page."""
    return render_page(OPTIONS, ignored_names(OPTIONS))
