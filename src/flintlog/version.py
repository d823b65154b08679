"""The version of flintlog, in one place: packaging and `flintlog --version` read it here."""

VERSION = "0.1.0"
