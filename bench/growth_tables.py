"""What bench/growth.py found, as tables and pictures; and the file in which the numbers are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glassformer import plots


def size_of(facts: dict[str, Any], key: str) -> str:
    if key not in facts:
        return "—"
    return f"{facts[key] / 2**30:.2f} GB" if facts[key] >= 2**30 else f"{facts[key] / 2**20:.0f} MB"


def cell(facts: dict[str, Any], key: str, form: str) -> str:
    return form.format(facts[key]) if key in facts else facts.get("problem", "—")


def table_of(results: list[dict[str, Any]], table: str) -> str:
    rows = [facts for facts in results if facts["table"] == table]
    speed, mfu = "{:,.0f}", "{:.1%}"
    if table == "length":
        head = ["length", "attention", "rows", "tokens/s", "MFU", "memory", "memory of one row", "of it the step"]
        cells = [
            [
                f"{f['length']:,}",
                f["label"],
                f["rows"],
                cell(f, "tokens_per_second", speed),
                cell(f, "mfu", mfu),
                size_of(f, "peak"),
                size_of(f, "one_row_peak"),
                size_of(f, "one_row_step"),
            ]
            for f in rows
        ]
    elif table == "size":
        head = ["parameters", "without words", "layers x width", "tokens/s", "MFU", "memory", "of it the step"]
        cells = [
            [
                f"{f['parameters'] / 1e6:,.0f} M",
                f"{f['non_embedding'] / 1e6:,.0f} M",
                f"{f['layers']} x {f['width']}",
                cell(f, "tokens_per_second", speed),
                cell(f, "mfu", mfu),
                size_of(f, "peak"),
                size_of(f, "step"),
            ]
            for f in rows
        ]
    else:
        head = ["rows", "tokens a step", "tokens/s", "MFU", "memory", "of it the step"]
        cells = [
            [
                f["rows"],
                f"{f['rows'] * f['length']:,}",
                cell(f, "tokens_per_second", speed),
                cell(f, "mfu", mfu),
                size_of(f, "peak"),
                size_of(f, "step"),
            ]
            for f in rows
        ]
    shown = [i for i in range(len(head)) if any(row[i] != "—" for row in cells)]
    head, cells = [head[i] for i in shown], [[row[i] for i in shown] for row in cells]
    lines = [head, ["---"] * 2 + ["---:"] * (len(head) - 2), *cells]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


AXES = {
    "length": ("length", "tokens in a row", "one_row_step", "memory of a step on one row (GB)"),
    "size": ("non_embedding", "parameters without the table of words", "peak", "peak memory (GB)"),
    "batch": ("rows", "rows of 1,024 tokens in a step", "peak", "peak memory (GB)"),
}


def picture(results: list[dict[str, Any]], table: str, device: str) -> Any:
    across, label, memory_key, memory_label = AXES[table]
    fig, axes = plots.figure(9.0, 3.6, ncols=2)
    rows = [facts for facts in results if facts["table"] == table]
    for name, colour in zip(dict.fromkeys(f["label"] for f in rows), plots.COLOURS, strict=False):
        for axis, key, unit in ((axes[0], "tokens_per_second", 1.0), (axes[1], memory_key, 2.0**30)):
            points = [(f[across], f[key] / unit) for f in rows if f["label"] == name and key in f]
            if points:
                axis.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=4, label=name or None)
    if table == "length":
        points = [
            (f["length"], f[memory_key] / 2**30) for f in rows if f["label"] == "full" and f.get(memory_key, 0) > 0
        ]
        if len(points) > 1:
            first, last = points[0][0], points[-1]
            line = [(x, last[1] * x / last[0]) for x in (first, last[0])]
            axes[1].plot(*zip(*line, strict=True), color="#888888", linestyle=":", label="in proportion to the length")
        for axis in axes:
            axis.legend(frameon=False)
    for axis, name in zip(axes, ("tokens a second", memory_label), strict=True):
        axis.set_xscale("log", base=2 if table != "size" else 10)
        axis.set_xlabel(label)
        axis.set_ylabel(name)
        axis.set_yscale("log")
        axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:,.0f}M" if table == "size" else f"{x:,.0f}")
        axis.set_xticks(sorted({f[across] for f in rows}), minor=False)
        axis.minorticks_off()
        low, high = axis.get_ylim()
        for marks in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
            ticks = [t for e in range(-3, 8) for m in marks if low <= (t := m * 10.0**e) <= high]
            if len(ticks) > 2:
                break
        axis.set_yticks(ticks)
        axis.yaxis.set_major_formatter(lambda y, _: f"{y:,.3g}" if y < 1000 else f"{y:,.0f}")
        axis.tick_params(axis="x", labelsize=8)
    fig.suptitle(f"A GPT's training step against {table} ({device})", fontsize=11, fontweight="bold")
    return fig


def keep(found: dict[str, Any], path: Path) -> None:
    """Into the file, in which what the same kind of device measured before stays until it is measured again."""

    def which(facts: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(facts.get(key) for key in ("table", "label", "length", "rows", "layers"))

    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else found
    measured = set(map(which, found["results"]))
    others = [f for f in before["results"] if before["device"] == found["device"] and which(f) not in measured]
    path.write_text(json.dumps({**found, "results": others + found["results"]}, indent=1) + "\n", encoding="utf-8")


def tell(found: dict[str, Any], out: Path | None) -> None:
    print(f"{found['device']}, torch {found['torch']}, {found['date']}; peak {found['peak'] / 1e12:,.2f} TFLOP/s")
    for table in dict.fromkeys(facts["table"] for facts in found["results"]):
        print(f"\n{table_of(found['results'], table)}")
        if out is not None:
            try:
                drawn = plots.save(
                    picture(found["results"], table, found["device"]), out / f"growth-{table}-{found['kind']}"
                )
                print(f"\npictures: {', '.join(map(str, drawn))}")
            except ImportError as error:
                print(f"\nno picture ({error}); draw it later with --draw")
