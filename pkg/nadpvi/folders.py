"""Where the package keeps what it can make again."""

import os
from pathlib import Path

__all__ = ["cache_dir"]


def cache_dir() -> Path:
    """Return the folder for compiled programs, logs, noise multipliers and trials; it need not exist yet.

    The environment variable NADPVI_CACHE_DIR overrides the platform's user cache.
    """
    chosen = os.environ.get("NADPVI_CACHE_DIR", "")
    if chosen:
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("nadpvi"))
