"""The command line: thin commands over the Python interface; `nadpvi.cli.app` is the entry point."""
