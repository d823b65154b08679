"""Builds the native kernel, if it can: without a compiler the package works with the plain one.

`python setup.py build_ext --inplace` builds it in the source tree. Everything else about the package is
in pyproject.toml.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

from setuptools import Extension, setup

KERNEL = "src/flintlog/kernel"


def native_kernel() -> list[Extension]:
    """The extension; none where it cannot work (big-endian machines, no Cython) or is not wanted."""
    if sys.byteorder != "little" or os.environ.get("FLINTLOG_BUILD_NATIVE") == "0":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        warnings.warn("Cython is missing: flintlog is installed without its native kernel", stacklevel=1)
        return []
    extension = Extension(
        "flintlog.kernel.native",
        [f"{KERNEL}/native.pyx"],
        depends=[str(part) for suffix in ("pyx", "pxi", "h") for part in sorted(Path(KERNEL).glob(f"*.{suffix}"))],
        extra_compile_args=["-O3", "-fno-strict-aliasing", "-fwrapv", *os.environ.get("FLINTLOG_CFLAGS", "").split()],
        extra_link_args=os.environ.get("FLINTLOG_LDFLAGS", "").split(),
    )
    built: list[Extension] = cythonize([extension], quiet=True)
    for made in built:
        made.optional = True  # set here: cythonize makes new extensions and forgets it
    return built


setup(ext_modules=native_kernel())
