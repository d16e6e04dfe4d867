"""`glassformer reproduce paper`: the tables and figures of Attention Is All You Need (Vaswani et al. 2017), made again at a size
that fits, each number beside theirs with its machine and day. Each piece calls what makes it by itself (`complexity`,
`reproduce`, `sweep`, `look`), and is kept when it is done; called again, it goes on with what is missing."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from glassformer import plots
from glassformer.config import not_among
from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.files.durable import write_atomically
from glassformer.files.owned import OwnedFiles
from glassformer.language import _, in_language
from glassformer.runs.report import device_name, made_with, markdown_table, write_report
from glassformer.screen import say
from glassformer_lab.reproduce.reproduction import reproduce

FEW_STEPS = ("train.steps=20", "train.warmup=5", "train.validate_every=20", "train.save_every=20", "data.size=500")
TITLE = _("Attention Is All You Need, made again")
ANAPHORA = "the old judge that likes the law helps its king with the scarf"


@dataclass(frozen=True)
class PaperPiece:
    """A table or figure: what stands in the paper and what was made here, in rows, with the figures' files."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    command: str
    machine: str
    date: str
    figures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Asked:
    """How it is to be made: where, with how little, on what."""

    out: Path
    quick: bool
    device: torch.device

    @property
    def few(self) -> dict[str, Any]:
        """How a recipe is reproduced for it."""
        return {"overrides": FEW_STEPS, "seeds": 1, "measure": False} if self.quick else {"measure": False}


@cache
def printed() -> dict[str, Any]:
    """The numbers of the paper."""
    return tomllib.loads(Path(__file__).with_name("paper.toml").read_text(encoding="utf-8"))


def done(
    asked: Asked, name: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], **more: Any
) -> PaperPiece:
    """A piece, with the machine and the day."""
    facts = {"machine": device_name(asked.device), "date": made_with()["date"]}
    return PaperPiece(name, title, tuple(columns), tuple(tuple(row) for row in rows), **facts, **more)


def table1(asked: Asked) -> PaperPiece:
    """Complexity of layers: the law, and the exponents of measured times."""
    from glassformer_lab.complexity import complexity, write

    report = complexity(asked.device, quick=asked.quick)
    write(report, asked.out / "table1")
    rows = []
    for row in report.rows:
        here = f"n^{row.time_in_n.value:.2f}, d^{row.time_in_d.value:.2f}"
        rows.append((row.layer.name, row.layer.time, here, row.layer.sequential))
    columns = (_("layer"), _("paper: a layer's time"), _("here: fitted exponents"), _("paper: sequential operations"))
    return done(asked, "table1", _("Table 1: complexity of layers"), columns, rows, command="glassformer complexity")


def table2(asked: Asked) -> PaperPiece:
    """BLEU: the paper's tests need WMT14; what can be had is trained in its place."""
    missing = _("not made: it needs the files of WMT14 (see `glassformer info` of its recipe)")
    rows = [(one["what"], one["paper"], missing) for one in printed()["bleu"]]
    for name in ("copy",) if asked.quick else ("multi30k-en-de", "tatoeba-en-zh", "phrases-zh-en"):
        try:
            found = reproduce(name, asked.out / "table2" / name, **asked.few)
            seeds = len(found.outcomes)
            ours = f"{found.median:.2f} {found.what.metric}, {seeds} seed{'s' * (seeds > 1)}"
            theirs = "–" if found.what.published is None else f"{found.what.published:g} ({found.what.source})"
        except UserError as error:
            ours, theirs = str(error), "–"
        rows.append((name, theirs, ours))
    columns, command = (_("test"), _("published"), _("here")), "glassformer reproduce multi30k-en-de"
    return done(asked, "table2", _("Table 2: translation"), columns, rows, command=command)


def told(row: Any, name: str) -> str:
    """A score of a variant: mean ± deviation over seeds."""
    mean, spread = row.mean(name), row.spread(name)
    return "–" if mean is None else f"{mean:.4g}" + ("" if spread is None else f" ± {spread:.2g}")


def table3(asked: Asked) -> PaperPiece:
    """Variations: rows A to E on Multi30k where its files are, else on dates."""
    from glassformer_lab.sweep import make_sweep, sweep
    from glassformer_lab.sweep.report import SweepReport
    from glassformer_lab.sweep.variants import BASE

    name = "table3-multi30k" if Path("data/multi30k-en-de").is_dir() and not asked.quick else "table3"
    varied = make_sweep(name, quick=asked.quick)
    if asked.quick:  # the base, and one row to be seen beside it
        few = tuple(one for one in varied.variants if one.name == BASE or one.group.startswith("(E)"))
        varied = replace(varied, variants=few, recipes={one.name: varied.recipes[one.name] for one in few})
    report = sweep(varied, asked.out / "table3")
    assert isinstance(report, SweepReport)
    theirs = {group: iter(rows) for group, rows in printed()["variations"].items()}
    rows = []
    for row in report.rows:
        group = "base" if row.variant.name == BASE else row.variant.group.split()[0]
        of_values = row.variant.name.startswith("(B) d_v")  # a row that the paper has not
        paper = next(theirs[group], "– | – | –") if not of_values else "– | – | –"
        rows.append((*paper.split(" | "), row.variant.name, told(row, "loss"), told(row, report.metric)))
    columns = (_("paper: varied"), "PPL", "BLEU", _("here: varied"), _("here: loss"), _("here: score"))
    title, command = _("Table 3: variations of the Transformer"), f"glassformer sweep {name}"
    return done(asked, "table3", title, columns, rows, command=command)


def table4(asked: Asked) -> PaperPiece:
    """Constituency parsing by writing trees: of a grammar of our own, and NLTK's sample of the paper's, where it is."""
    rows = [(what, f1, "–") for what, f1 in printed()["parsing"].items()]
    found = reproduce("treebank", asked.out / "table4", **asked.few)
    rows.append((_("sentences of our grammar, 2 layers"), "–", f"{found.median:.2f} F1"))
    if not asked.quick:
        try:
            found = reproduce("treebank-wsj", asked.out / "table4-wsj", **asked.few)
            ours = f"{found.median:.2f} F1"
        except UserError:
            ours = _("not made: it needs `glassformer data get treebank`")
        rows.append((_("WSJ, NLTK's sample (a tenth of it), 4 layers"), "–", ours))
    note = _(
        "The paper's trees are not free; a small grammar is far easier, and a sample teaches less, so the numbers are beside and "
        "not against each other."
    )
    columns, more = (_("trees"), _("paper"), _("here")), {"command": "glassformer reproduce treebank", "notes": (note,)}
    return done(asked, "table4", _("Table 4: constituency parsing"), columns, rows, **more)


def figures(asked: Asked) -> PaperPiece:
    """Figures 3 to 5: what the heads of the parser look at, in a sentence whose `its` stands for something."""
    from glassformer.api import load
    from glassformer.inspection.inspection import look_inside
    from glassformer.inspection.map_pictures import map_figure, maps_figure

    table4(asked)  # its run is what is looked at; it is kept
    model = load(next((asked.out / "table4").glob("treebank-seed-*")))
    inside = look_inside(model, ANAPHORA, explained=False, tree=False)
    words = list(inside.readings()["source"].pieces)
    asks = next((i for i, word in enumerate(words) if word.strip() == "its"), len(words) - 1)
    layers = [
        (n, layer.head_ids[h], layer.weights[h])
        for n, layer in enumerate(inside.activations.attentions["encoder"])
        for h in range(len(layer.head_ids))
    ]
    rows = []
    for n, head, weights in layers:
        most = int(weights[asks].argmax())
        rows.append((str(n), str(head), f"`{words[most].strip()}`", f"{weights[asks, most]:.2f}"))
    n, head, weights = max(layers, key=lambda one: float(one[2][asks].max()))
    title = f"encoder self-attention, layer {n}, head {head}"
    made = {
        "figure3": maps_figure(inside),
        "figure4": map_figure(weights, words, words, title, "weight", 1.0),
        "figure5": map_figure(weights[[asks]], [words[asks]], words, title, "weight", 1.0),
    }
    paths = [path for name, figure in made.items() for path in plots.save(figure, asked.out / name)]
    columns = (_("layer"), _("head"), _("`its` looks most at"), _("weight"))
    return done(
        asked, "figures", _("Figures 3 to 5: heads on a sentence with an anaphora"), columns, rows,
        command="glassformer look", figures=tuple(path.name for path in paths if path.suffix == ".png"),
        notes=(_("Figures 1 and 2, the machine and its attention, are drawn from the code by `glassformer figures`."),),
    )  # fmt: skip


PIECES: dict[str, Callable[[Asked], PaperPiece]] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "table4": table4,
    "figures": figures,
}


def kept(asked: Asked, name: str) -> PaperPiece | None:
    """A piece that an earlier call made at this size; None where there is none."""
    path = asked.out / f"{name}.json"
    if not path.is_file():
        return None
    found = structured.read(path, dict[str, Any])
    return structured.convert(found["piece"], PaperPiece, path.name) if found.get("quick") == asked.quick else None  # type: ignore[no-any-return]


def reproduce_paper(
    out: Path, *, quick: bool = False, only: Sequence[str] = (), device: torch.device
) -> list[PaperPiece]:
    """Makes what is missing and leaves in `out` a folder and NAME.json for each piece, and paper.md and paper.json with all."""
    for name in only:
        if name not in PIECES:
            raise UserError("the paper has no piece {name!r}{suggestion}; there are {names}", *not_among(name, PIECES))
    out.mkdir(parents=True, exist_ok=True)
    asked = Asked(out, quick, device)
    pieces = []
    with OwnedFiles(out).exclusive_lock("paper"):
        for name, make in PIECES.items():
            piece = kept(asked, name)
            if piece is None and (not only or name in only):
                say(_("{name}: being made", name))
                piece = make(asked)
                write_report(out, name, {"quick": quick, "piece": in_json(piece)})
            if piece is not None:
                pieces.append(piece)
        write_report(out, "paper", {"quick": quick, "pieces": [in_json(one) for one in pieces]}, page(pieces, "en"))
        (chinese,) = OwnedFiles(out).claim("paper.zh.md")
        write_atomically(chinese, page(pieces, "zh").encode())
    return pieces


def in_json(piece: PaperPiece) -> dict[str, Any]:
    """As JSON has it."""
    return asdict(piece) | {"title": str(piece.title)}


def page(pieces: Sequence[PaperPiece], language: str) -> str:
    """Every piece as a section of Markdown."""

    def said(texts: Sequence[str]) -> list[str]:
        return [in_language(text, language) for text in texts]

    lines = [f"# {in_language(TITLE, language)}", ""]
    for piece in pieces:
        lines += [f"## {in_language(piece.title, language)}", ""]
        lines += [*markdown_table(said(piece.columns), [said(row) for row in piece.rows]), ""]
        lines += [line for name in piece.figures for line in (f"![{Path(name).stem}]({name})", "")]
        lines += [*said(piece.notes), "", f"`{piece.command}`, {piece.machine}, {piece.date}.", ""]
    return "\n".join(lines)
