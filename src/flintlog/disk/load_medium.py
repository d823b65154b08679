"""Loads the medium that a configuration names, and checks one that a caller passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from flintlog.disk.media.medium import Medium
from flintlog.errors import InvalidConfig

MEDIA_GROUP = "flintlog.media"


def load_medium(name: str) -> Medium:
    """The medium of this name: "local", "faulty" or an installed entry point.

    >>> type(load_medium("local")).__name__
    'LocalMedium'
    """
    factory = _factory(name)
    if not callable(factory):
        raise InvalidConfig(f"the entry point of the medium {name!r} must be callable, not {type(factory).__name__}")
    return check_medium(factory())


def check_medium(medium: Medium) -> Medium:
    """Return the medium, or raise if the object is not one."""
    if isinstance(medium, type) or not callable(getattr(medium, "create", None)):
        raise InvalidConfig(f"not a medium: {medium!r:.80}", advice="pass an object with the methods of LocalMedium")
    return medium


def _factory(name: str) -> Callable[[], Medium]:
    if name == "local":
        from flintlog.disk.media.local import LocalMedium

        return LocalMedium
    if name == "faulty":
        from flintlog.disk.faulty.faulty_disk import FaultyMedium

        return FaultyMedium
    from importlib.metadata import entry_points  # late: importing it is slow

    found = next(iter(entry_points(group=MEDIA_GROUP, name=name)), None)
    if found is None:
        raise InvalidConfig(
            f"no medium named {name!r}", advice=f"'local', or an entry point of the group {MEDIA_GROUP}"
        )
    try:
        return cast("Callable[[], Medium]", found.load())
    except (ImportError, AttributeError) as error:
        raise InvalidConfig(f"the medium {name!r} cannot be loaded: {error}") from error
