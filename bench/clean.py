"""Noise of ten kinds planted into real pairs, and how much of it `glassformer data clean` finds, at what cost in good pairs.

    python3 bench/clean.py --data DIR                 # tatoeba/en-zh, tatoeba/en-de and multi30k, as `data get` leaves them
    python3 bench/clean.py --data DIR --share 0.01    # of each kind; 0.03 if not said, together three pairs in ten

Found: taken out by any rule, or repaired to what it was. Of a near duplicate and its original one must go. Good pairs are
those in which nothing was planted; as many as get a wrong address get a right one, and count as good. The command is the one a
person gives, timed from outside.
"""

from __future__ import annotations

import argparse
import html
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
Pair = tuple[str, str]
Plant = Callable[[Pair, list[Pair], random.Random], Pair | None]
OTHER_LANGUAGES = """Le petit garçon joue avec son chien dans le jardin.|Je ne sais pas encore quand nous pourrons partir.
Elle a oublié ses clés sur la table de la cuisine.|Est-ce que tu peux m'aider à porter cette valise ?
Il pleut depuis trois jours et la rivière monte.|Nos voisins ont acheté une vieille maison au bord de la mer.
Les enfants dorment déjà.|Personne ne m'a dit que le magasin était fermé.
El niño pequeño juega con su perro en el jardín.|Todavía no sé cuándo podremos salir.
Ella olvidó las llaves en la mesa de la cocina.|¿Puedes ayudarme a llevar esta maleta?
Llueve desde hace tres días y el río crece.|Nuestros vecinos compraron una casa vieja junto al mar.
Los niños ya duermen.|Nadie me dijo que la tienda estaba cerrada.
Il ragazzino gioca con il suo cane nel giardino.|Non so ancora quando potremo partire.
Ha dimenticato le chiavi sul tavolo della cucina.|Puoi aiutarmi a portare questa valigia?
Piove da tre giorni e il fiume sta salendo.|I nostri vicini hanno comprato una vecchia casa vicino al mare.
I bambini dormono già.|Nessuno mi ha detto che il negozio era chiuso.
De kleine jongen speelt met zijn hond in de tuin.|Ik weet nog niet wanneer we kunnen vertrekken.
Ze is haar sleutels op de keukentafel vergeten.|Kun je me helpen deze koffer te dragen?
Het regent al drie dagen en de rivier stijgt.|Onze buren hebben een oud huis aan zee gekocht.
De kinderen slapen al.|Niemand heeft me gezegd dat de winkel gesloten was.""".replace("\n", "|").split("|")


def changed(pair: Pair, side: int, text: str) -> Pair:
    """The pair with another text on a side."""
    return (text, pair[1]) if side == 0 else (pair[0], text)


def plant_mojibake(pair: Pair, others: list[Pair], draw: random.Random) -> Pair | None:
    """UTF-8 read as Windows-1252, Latin-1 or (Chinese) GBK; or letters that became question marks."""
    sides = [side for side in (0, 1) if not pair[side].isascii()]
    if not sides:
        return None
    side = draw.choice(sides)
    kind, text = draw.choice(("cp1252", "latin-1", "gbk", "lost")), pair[side]
    if kind == "lost":
        return changed(pair, side, text.encode("ascii", "replace").decode())
    if kind == "gbk" and not re.search("[\u4e00-\u9fff]{3}", text):
        kind = "latin-1"
    return changed(pair, side, text.encode().decode(kind, "replace").replace("\n", " "))


def plant_entities(pair: Pair, others: list[Pair], draw: random.Random) -> Pair:
    """What was a page: entities, once or twice, and tags."""
    side = draw.randrange(2)
    text, words = pair[side], pair[side].split()
    kind = draw.randrange(3)
    if kind == 0:
        text = text.encode("ascii", "xmlcharrefreplace").decode().replace("'", "&#39;").replace(" ", "&nbsp;", 1)
        text += "&nbsp;" if "&" not in text else ""
    elif kind == 1:
        words[0] = f"<b>{words[0]}</b>"
        text = html.escape(" ".join(words))
    else:
        text = f'<p class="text">{text}</p><br/>'
    return changed(pair, side, text)


def plant_near_duplicate(pair: Pair, others: list[Pair], draw: random.Random) -> Pair:
    """The pair again: in capitals, with other punctuation, or with a slip of the keyboard on the side that has letters."""
    kind, side = draw.randrange(4), draw.randrange(2)
    if kind == 0:
        return changed(pair, 0, pair[0].upper())
    if kind == 1:
        return changed(pair, side, pair[side].rstrip(".!。！ ") + draw.choice(("", "!", " .", "...")))
    side = 0 if re.search("[\u4e00-\u9fff]", pair[1]) else side
    places = [m.start() for m in re.finditer("[a-z][a-z](?=[a-z])", pair[side])] or [0]
    place, text = draw.choice(places), pair[side]
    swap = text[place : place + 2][::-1] if kind == 2 else text[place]
    return changed(pair, side, text[:place] + swap + text[place + 2 :])


def plant_language(pair: Pair, others: list[Pair], draw: random.Random) -> Pair:
    """A side in a language that is neither."""
    chinese = re.search("[\u4e00-\u9fff]", pair[1])
    more = (
        ["今天天气很好，我们去公园吧。", "我不知道他什么时候回来。"]
        if not chinese
        else ["Ich weiß es nicht genau.", "Wir sind gestern zu spät gekommen."]
    )
    return changed(pair, draw.randrange(2), draw.choice(OTHER_LANGUAGES + 4 * more))


def plant_copy(pair: Pair, others: list[Pair], draw: random.Random) -> Pair | None:
    """Not translated: the source again, in other case, without its end, or with a word less."""
    words = pair[0].split()
    if len(words) < 3:
        return None
    kind = draw.randrange(4)
    text = (pair[0], pair[0].upper(), pair[0].rstrip(".!?"), " ".join(words[:-1]))[kind]
    return changed(pair, 1, text)


def plant_length(pair: Pair, others: list[Pair], draw: random.Random) -> Pair:
    """A target of which a third is left, or with another pair's behind it."""
    target = pair[1]
    if draw.random() < 0.5:
        return changed(pair, 1, target[: max(1, len(target) // 3)].strip() or target[0])
    return changed(pair, 1, f"{target} {draw.choice(others)[1]}")


def plant_number(pair: Pair, others: list[Pair], draw: random.Random) -> Pair | None:
    """A number of the target that both sides have, with another digit."""
    shared = [n for n in re.findall(r"\d+", pair[1]) if n in re.findall(r"\d+", pair[0])]
    if not shared:
        return None
    number = draw.choice(shared)
    place = draw.randrange(len(number))
    digit = draw.choice([d for d in "123456789" if d != number[place]])
    return changed(pair, 1, pair[1].replace(number, number[:place] + digit + number[place + 1 :], 1))


def address(draw: random.Random) -> str:
    """A made-up address."""
    return (
        f"https://www.{draw.choice(('shop', 'news', 'blog'))}{draw.randrange(99)}.example.org/{draw.randrange(10**6)}"
    )


def plant_address(pair: Pair, others: list[Pair], draw: random.Random) -> Pair:
    """Two addresses, or one on one side alone."""
    first, second = (address(draw) for _ in range(2))
    return (f"{pair[0]} {first}", f"{pair[1]} {second}" if draw.random() < 0.5 else pair[1])


def plant_misaligned(pair: Pair, others: list[Pair], draw: random.Random) -> Pair | None:
    """The target of another pair: of thirty the one that is nearest in length."""
    found = min(
        (other[1] for other in draw.sample(others, 30) if other[1] != pair[1]), key=lambda t: abs(len(t) - len(pair[1]))
    )
    return changed(pair, 1, found)


def plant_exchanged(pair: Pair, others: list[Pair], draw: random.Random) -> Pair:
    """Target and source."""
    return pair[1], pair[0]


KINDS: dict[str, Plant] = {
    "mojibake": plant_mojibake,
    "entities and tags": plant_entities,
    "near duplicates": plant_near_duplicate,
    "another language": plant_language,
    "copies": plant_copy,
    "cut off or added to": plant_length,
    "numbers": plant_number,
    "addresses": plant_address,
    "misaligned": plant_misaligned,
    "exchanged": plant_exchanged,
}


def read_pairs(data: Path, corpus: str) -> list[Pair]:
    """The training pairs of a corpus."""
    if corpus == "multi30k":
        sides = ((data / corpus / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de"))
        return [(a.strip(), b.strip()) for a, b in zip(*sides, strict=True)]
    lines = (data / corpus / "train.tsv").read_text(encoding="utf-8").splitlines()
    return [(cells[0], cells[1]) for line in lines if len(cells := line.split("\t")) > 1]


def planted(pairs: list[Pair], share: float, seed: int) -> list[tuple[Pair, Pair, str]]:
    """What goes into the file: the pair, what it was, and what was done to it ("" of a good one), shuffled."""
    draw = random.Random(seed)
    free = list(range(len(pairs)))
    draw.shuffle(free)
    free.sort(key=lambda i: not re.search(r"\d", pairs[i][1]))  # numbers first: few pairs have one
    rows: list[tuple[Pair, Pair, str]] = []
    count = round(share * len(pairs))
    for kind in sorted(KINDS, key=lambda kind: kind != "numbers"):
        done, passed = 0, []
        while free and done < count and (kind != "numbers" or re.search(r"\d", pairs[free[0]][1])):
            place = free.pop(0)
            noisy = KINDS[kind](pairs[place], pairs, draw)
            if noisy is None or noisy == pairs[place]:
                passed.append(place)
                continue
            done += 1
            rows.append((noisy, pairs[place], kind))
            if kind == "near duplicates":
                rows.append((pairs[place], pairs[place], "original"))
            if kind == "addresses" and free:
                first, second = pairs[free.pop(0)]
                where = address(draw)
                good = f"{first} {where}", f"{second} {where}"
                rows.append((good, good, ""))
        free = passed + free
        draw.shuffle(free)
    rows += [(pairs[i], pairs[i], "") for i in free]
    draw.shuffle(rows)
    return rows


def plain(pair: Pair) -> list[list[str]]:
    """A pair as it is compared: blanks of no width and runs of blanks do not count."""
    return [re.sub("[\u200b\u2060\ufeff]", "", side).split() for side in pair]


def measure(
    rows: list[tuple[Pair, Pair, str]], folder: Path
) -> tuple[Counter[str], Counter[str], Counter[str], float, Counter[str]]:
    """By kind how many were planted and found; the rules that took good pairs; seconds; what was done to good pairs."""
    source = folder / "pairs.tsv"
    source.write_text("".join(f"{a}\t{b}\n" for (a, b), _was, _kind in rows), encoding="utf-8")
    began = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "glassformer",
        "data",
        "clean",
        str(source),
        "--out",
        str(folder / "clean.tsv"),
        "--quiet",
    ]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    cells = (line.split("\t") for line in (folder / "clean.removed.tsv").read_text(encoding="utf-8").splitlines())
    removed = {int(cell[1]) - 1: cell[0] for cell in cells}
    lines = (folder / "clean.tsv").read_text(encoding="utf-8").splitlines()
    kept = dict(
        zip((i for i in range(len(rows)) if i not in removed), (tuple(line.split("\t")) for line in lines), strict=True)
    )
    number, found, by_rule, good = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    alone = {
        was for i, (_pair, was, kind) in enumerate(rows) if kind in ("original", "near duplicates") and i in removed
    }
    for i, (_pair, was, kind) in enumerate(rows):
        if kind and kind != "original":
            number[kind] += 1
            found[kind] += was in alone if kind == "near duplicates" else i in removed or plain(kept[i]) == plain(was)
        elif not kind:
            good["good"] += 1
            good["lost"] += i in removed
            good["changed"] += i in kept and plain(kept[i]) != plain(was)
            by_rule.update([removed[i]] if i in removed else [])
    return number, found, by_rule, seconds, good


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--share", type=float, default=0.03)
    parser.add_argument("--pairs", type=int, help="only so many pairs of each corpus")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="leave the files there, and what was planted")
    parser.add_argument("--corpus", action="append", help="tatoeba/en-zh, tatoeba/en-de or multi30k; all if not said")
    given = parser.parse_args()
    results = {}
    for corpus in given.corpus or ("tatoeba/en-zh", "tatoeba/en-de", "multi30k"):
        rows = planted(read_pairs(given.data, corpus)[: given.pairs], given.share, given.seed)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) if given.keep is None else given.keep / corpus
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "planted.tsv").write_text(
                "".join(f"{kind}\t{a}\t{b}\n" for (a, b), _was, kind in rows), encoding="utf-8"
            )
            results[corpus] = measure(rows, folder)
        by_rule, seconds = results[corpus][2:4]
        told = ", ".join(f"{rule} {count}" for rule, count in by_rule.most_common())
        print(f"{corpus}: {len(rows):,} pairs in {seconds:.0f} s; good pairs lost by rule: {told}", flush=True)
    print(f"\n{platform.machine()}, {given.share:.0%} of each kind: found, of so many\n")
    print(f"| kind | {' | '.join(results)} |\n| --- |{' ---: |' * len(results)}")
    for kind in KINDS:
        print(
            f"| {kind} |",
            *(f"{100 * r[1][kind] / max(1, r[0][kind]):.1f}% of {r[0][kind]:,} |" for r in results.values()),
        )
    print("| all |", *(f"{100 * r[1].total() / r[0].total():.1f}% of {r[0].total():,} |" for r in results.values()))
    for what in ("lost", "changed"):
        print(
            f"| good pairs {what} |",
            *(f"{100 * r[4][what] / r[4]['good']:.2f}% of {r[4]['good']:,} |" for r in results.values()),
        )


if __name__ == "__main__":
    main()
