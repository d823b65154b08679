"""flintlog: a message store for Python that reads and writes Apache RocketMQ's store directories, byte for byte.

`flintlog.public` lists the public names. It is imported when one of them is first used: `flintlog --version` passes
through here too, and should not wait for a store.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from flintlog.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from flintlog.public import *  # noqa: F403

    __all__: list[str]
else:  # a type checker would take every misspelt name for one of ours

    def __getattr__(name: str) -> object:
        # `from flintlog import kernel` asks here first. It must not import the store, which itself is written so.
        is_ours = name == "__all__" or not (name.startswith("_") or find_spec(f"flintlog.{name}"))
        names = _public_names() if is_ours else {}
        if name not in names:
            raise AttributeError(f"module 'flintlog' has no attribute {name!r}")
        globals().update(names)
        return names[name]


def _public_names() -> dict[str, object]:
    found = vars(import_module("flintlog.public"))
    names = {name: value for name, value in found.items() if name[0].isalpha()}  # pytest adds some with an @
    return {**names, "__all__": sorted(names)}


def __dir__() -> list[str]:
    return sorted([*_public_names(), "__version__"])
