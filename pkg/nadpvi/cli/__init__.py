"""The command line: thin commands over the Python interface."""

from nadpvi.cli.app import main

__all__ = ["main"]
