"""The page of options; the store declares them and renders the page itself."""

from __future__ import annotations

from flintlog.store.config import OPTIONS
from flintlog.store.options import render_page
from flintlog.store.rocketmq_options import ignored_names


def render() -> str:
    """The page."""
    return render_page(OPTIONS, ignored_names(OPTIONS))
