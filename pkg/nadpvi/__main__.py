"""Run the command line with ``python -m nadpvi``."""

from nadpvi.cli.app import main

if __name__ == "__main__":
    main()
