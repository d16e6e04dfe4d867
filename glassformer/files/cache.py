"""The user's cache folder: what can be made again, and lies there so that it need not be."""

from __future__ import annotations

import os
import sys
from pathlib import Path

OFF = ("off", "0", "no", "false")


def cache_folder() -> Path | None:
    """GLASSFORMER_CACHE, or as the system has it; None where GLASSFORMER_CACHE=off says that nothing is to be kept."""
    if given := os.environ.get("GLASSFORMER_CACHE"):
        return None if given.lower() in OFF else Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "glassformer"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "glassformer" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glassformer"
