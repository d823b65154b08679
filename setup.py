"""Builds the compiled kernel; everything else about the package is in pyproject.toml.

The kernel is optional: without a C compiler the installation still succeeds, flintlog runs on the plain Python
kernel, and `flintlog doctor` says so.
"""

from __future__ import annotations

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNEL = Path("src/flintlog/kernel")


def kernel_extensions() -> list[Extension]:
    """One extension for each Cython module of the kernel."""
    return [
        Extension(
            f"flintlog.kernel.{source.stem}",
            [str(source)],
            include_dirs=[str(KERNEL)],
            depends=[str(part) for ending in ("*.h", "*.pxi", "*.pxd") for part in sorted(KERNEL.glob(ending))],
            extra_compile_args=["-O3", "-fno-strict-aliasing"],
            optional=True,
        )
        for source in sorted(KERNEL.glob("*.pyx"))
    ]


extensions = kernel_extensions()
setup(ext_modules=cythonize(extensions, language_level=3) if extensions else [])
