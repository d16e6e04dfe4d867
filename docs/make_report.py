"""The report that the site shows:  python3 docs/make_report.py runs/dates "3 mai 1979"

Its numbers are kept in docs/assets/report.json; the page around them is that of the package when the site is built
(site_hooks.py).
"""

from __future__ import annotations

import sys
from pathlib import Path

import glassformer
from glassformer.inspection.page import page_json

FILE = Path(__file__).parent / "assets" / "report.json"

if __name__ == "__main__":
    run, text = sys.argv[1:]
    data = glassformer.load(run, device="cpu").show(text, title=Path(run).name).data
    FILE.write_text(page_json(data) + "\n", encoding="utf-8")
