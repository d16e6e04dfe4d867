"""`look` from Python: a report as an object that shows itself in a notebook.

    import glassformer

    model = glassformer.load("runs/dates")
    glassformer.look(model, "3 mai 1979")                       # in a notebook: the page itself
    glassformer.look(model, "3 mai 1979").save("look.html")     # as one file

The page stands in a frame of its own (an `iframe` with `sandbox`), so its script and style cannot touch the notebook.
"""

from __future__ import annotations

import html
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glassformer.inspection.checkpoints import look_across
from glassformer.inspection.data import page_data
from glassformer.inspection.inspection import NEW, look_inside
from glassformer.inspection.page import page_html
from glassformer.inspection.patching import patch
from glassformer.tasks import TextModel


@dataclass(frozen=True)
class Look:
    """A report. In a notebook it shows itself; `save` writes it as one file; `data` is what its page is drawn from."""

    data: dict[str, Any]
    height: int = 760

    def to_html(self) -> str:
        """The whole page: one file that needs nothing else."""
        return page_html(self.data)

    def save(self, path: str | Path) -> Path:
        """Writes the page; opens in any browser, without a network."""
        path = Path(path)
        path.write_text(self.to_html(), encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        frame = f'sandbox="allow-scripts" width="100%" height="{self.height}" style="border:1px solid #ccc"'
        return f'<iframe {frame} srcdoc="{html.escape(self.to_html(), quote=True)}"></iframe>'

    def __repr__(self) -> str:
        return f"Look({self.data['text']!r}): shows itself in a notebook; .save('look.html') writes it as a page"


def look(
    model: TextModel,
    text: str,
    target: str | None = None,
    *,
    against: str | None = None,
    beside: Look | None = None,
    title: str | None = None,
    beam: int | None = None,
    new: int = NEW,
    across: Any = None,
) -> Look:
    """What goes on inside a model while it reads a text and answers: every view of `glassformer look`.

    `target` forces an answer. `against` is a second text for the patching map. `beside` is another report, shown to the right of
    this one. `across` is a run folder whose kept checkpoints are shown, too.

    >>> import glassformer
    >>> translator = glassformer.load("runs/dates")  # doctest: +SKIP
    >>> glassformer.look(translator, "3 mai 1979")  # doctest: +SKIP
    """
    inside = look_inside(model, text, target, beam=beam, new=new)
    if across is not None:
        inside = look_across(across, inside)
    if against is not None:
        inside = replace(inside, patching=patch(model, text, against))
    data = page_data(inside, title or model.kind)
    return Look(data | ({"beside": beside.data} if beside is not None else {}))
