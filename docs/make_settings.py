"""Writes docs/settings.md and its Chinese page from the comments in glassformer/config: `python3 docs/make_settings.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from glassformer.config.documentation import settings_page

if __name__ == "__main__":
    Path(__file__).with_name("settings.md").write_text(settings_page(), encoding="utf-8")
    Path(__file__).with_name("settings.zh.md").write_text(settings_page("zh"), encoding="utf-8")
