"""Numbers that others published, or that we set ourselves, reached again with one command: a recipe is trained through the
same path as `glassformer train`, scored by the published metric, and held against its goal.

What is reproduced is listed in REPRODUCTIONS, as plain data. Recipes are chosen on the validation split; the split a score
stands on is scored once a run, at the very end. (Tiny Shakespeare has no test split: its published number is the best loss
on the validation split, and so is ours.)

The metric belongs to the table, not to the recipe: no setting can change how a run is scored, only what it learned. What was
written and what was wanted are left in the run's folder, so that anyone can score them again with a tool of their own.

Times come from the run's own log. A step's usual time is the mean over log intervals in which nothing but training happened
(those that took twice as long as the median one had something else in them); all steps at that time are training. The first
interval beyond so many usual steps is compilation and start-up, a validation's line in the log beyond the steps before it
is validation, and the rest is saving: checkpoints, written and synced to the disk. Scoring is timed by itself.

Passing is a matter of the score. The time a goal names belongs to a certain machine, so it is told beside it.
"""

from __future__ import annotations

import datetime
import gc
import itertools
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from glassformer import runs
from glassformer.api import load
from glassformer.config import VERSION, Recipe, did_you_mean, read_recipe
from glassformer.data.download import cut_shakespeare
from glassformer.data.sources import SPLITS, given_origin, open_split
from glassformer.data.tokens import TokenFile
from glassformer.errors import UserError
from glassformer.evaluate import text_scores
from glassformer.files.durable import to_json, write_atomically
from glassformer.models import GPT, PRESETS
from glassformer.models.costs import costs
from glassformer.nn.rows import Rows
from glassformer.run_folder import RunFolder
from glassformer.studies.plan import Plan, make_plan
from glassformer.text.tokenizer import EOS
from glassformer.train.trainer import StepReport

Metric = Literal["bleu-none", "bleu-13a", "bleu-zh", "exact-match", "loss"]

ESTIMATE_BATCHES = 200  # nanoGPT's eval_iters
ESTIMATE_ROWS = 64  # its batch_size


# What there is to reproduce


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    name: str  # of the recipe too
    what: str
    metric: Metric
    published: float | None = None
    source: str = "no published number; the goal is our own"
    goal: float | None = None  # None: what `beside` reaches, and `margin` more
    beside: str | None = None  # a recipe that is run with it, to be compared
    margin: float = 0.0
    collection: str | None = None  # of `glassformer data get`; None: built in
    seeds: int = 1  # the median over so many, where nothing else is said
    within: float | None = None  # seconds of training ...
    where: str = ""  # ... on this machine
    no_larger_than: str | None = None  # a recipe whose number of parameters is the most

    @property
    def lower_is_better(self) -> bool:
        return self.metric == "loss"

    @property
    def folder(self) -> str:
        """Where `glassformer data get` puts the data."""
        return "" if self.collection is None else f"data/{self.collection.replace(':', '-')}"

    @property
    def goal_text(self) -> str:
        sign = "≤" if self.lower_is_better else "≥"
        return f"{sign} {self.goal:g}" if self.goal is not None else f"{sign} {self.beside} + {self.margin:g}"

    @property
    def time_text(self) -> str:
        """Empty where no time is asked for."""
        if self.within is None:
            return ""
        return f"{self.within:g} s on {'two CPU cores' if self.where == 'CPU' else 'an ' + self.where}"

    def reached(self, value: float, goal: float) -> bool:
        return value <= goal if self.lower_is_better else value >= goal


WU = "Wu et al., Good for Misconceived Reasons, ACL 2021: Transformer-tiny on text alone"
NANOGPT = "nanoGPT, README (about 3 minutes on an A100)"
CHINESE_NMT = (
    "ChineseNMT's own code on this very split, base size, 11 epochs, 8 minutes on an H200 (measured, not published)"
)

REPRODUCTIONS: tuple[Reproduction, ...] = (
    Reproduction(
        name="multi30k-en-de",
        what="image captions, English to German, the tiny Transformer",
        metric="bleu-none",
        published=41.02,
        source=WU,
        goal=41.02,
        collection="multi30k:en-de",
        seeds=3,
        within=60.0,
        where="H200",
    ),
    Reproduction(
        name="multi30k-en-de-best",
        what="the same test, any recipe from text alone",
        metric="bleu-none",
        published=41.96,
        source="Wu et al., ACL 2021: their best model, with the images",
        goal=42.0,
        collection="multi30k:en-de",
        seeds=3,
        within=60.0,
        where="H200",
    ),
    Reproduction(
        name="shakespeare-char",
        what="tiny Shakespeare by the character, nanoGPT's model",
        metric="loss",
        published=1.4697,
        source=NANOGPT,
        goal=1.4684,
        collection="shakespeare",
        within=8.0,
        where="H200",
    ),
    Reproduction(
        name="shakespeare-char-best",
        what="the same, any recipe of no more parameters",
        metric="loss",
        published=1.4697,
        source=NANOGPT,
        goal=1.42,
        collection="shakespeare",
        no_larger_than="shakespeare-char",
    ),
    Reproduction(
        name="tatoeba-en-zh",
        what="everyday sentences, English to Chinese",
        metric="bleu-zh",
        published=21.6,
        source=CHINESE_NMT,
        goal=26.0,
        collection="tatoeba:en-zh",
        within=120.0,
        where="H200",
    ),
    Reproduction(
        name="tatoeba-zh-en",
        what="everyday sentences, Chinese to English, beside a plain recipe",
        metric="bleu-13a",
        source="no published number; a plain recipe with the same updates is run beside it",
        beside="tatoeba-zh-en-plain",
        margin=3.0,
        collection="tatoeba:en-zh",
    ),
    Reproduction(
        name="dates",
        what="dates in 33 locales to ISO 8601, unseen days",
        metric="exact-match",
        goal=99.5,
        within=180.0,
        where="CPU",
    ),
    Reproduction(
        name="phrases-zh-en",
        what="everyday sentences, Chinese to English, held-out combinations",
        metric="exact-match",
        goal=99.0,
        within=300.0,
        where="CPU",
    ),
    Reproduction(name="copy", what="rows of letters repeated, of the lengths seen", metric="exact-match", goal=100.0),
    Reproduction(
        name="reverse", what="rows of letters turned round, of the lengths seen", metric="exact-match", goal=100.0
    ),
    Reproduction(
        name="sort", what="rows of letters put in order, of the lengths seen", metric="exact-match", goal=100.0
    ),
)


def reproduction(name: str) -> Reproduction:
    for one in REPRODUCTIONS:
        if one.name == name:
            return one
    names = [one.name for one in REPRODUCTIONS]
    raise UserError(
        f"there is nothing called {name!r} to reproduce{did_you_mean(name, names)}; there are {', '.join(names)}"
    )


# The data


def data_settings(what: Reproduction, folder: Path | None, out: Path) -> list[str]:
    """The settings that point a recipe at its data. Shakespeare is cut exactly where nanoGPT cuts it, at the character; the
    two parts are the ones `data get` made, or are made now from the whole text."""
    if what.collection is None:
        if folder is not None:
            raise UserError(f"the data of {what.name} are built in; leave out --data")
        return []
    folder = folder or Path(what.folder)
    if what.collection != "shakespeare":
        return [f"data.path={folder}"]
    if (folder / "input.txt").exists() and not ((folder / "train.txt").exists() and (folder / "val.txt").exists()):
        text = out / "text"
        text.mkdir(parents=True, exist_ok=True)
        cut_shakespeare(text, [folder / "input.txt"])
        folder = text
    return ["data.path=none", f"data.train={folder / 'train.txt'}", f"data.val={folder / 'val.txt'}"]


def recipe_of(name: str, what: Reproduction, settings: Sequence[str], overrides: Sequence[str]) -> Recipe:
    """The recipe with its data where they are; a sentence with the command that brings them where they are not."""
    recipe = read_recipe(name, [*settings, *overrides], presets=PRESETS)
    try:
        for split in SPLITS:
            given_origin(recipe.data, split)
    except UserError as error:
        if what.collection is None:
            raise
        raise UserError(
            f"{error}; get the data with `glassformer data get {what.collection}`, or say where they are by --data DIR"
        ) from None
    return recipe


# The metrics


@dataclass(frozen=True)
class Score:
    value: float
    signature: str
    others: dict[str, float] = field(default_factory=dict)  # told beside it


def device_of(recipe: Recipe) -> torch.device:
    return runs.pick_device(recipe.train)


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """A text a line; a line break inside one becomes a space."""
    write_atomically(path, "".join(" ".join(line.splitlines()) + "\n" for line in lines).encode())


def text_score(run: RunFolder, metric: Metric) -> Score:
    """Every sentence of the test split, written as the recipe's [decode] says."""
    talk = load(run.path, device=device_of(run.recipe).type)
    pairs = list(open_split(run.recipe.data, "test"))
    wanted = [target for _, target in pairs]
    written = talk.translate([source for source, _ in pairs])
    write_lines(run.path / "test.written.txt", written)
    write_lines(run.path / "test.wanted.txt", wanted)
    scores = text_scores(written, wanted, metric.removeprefix("bleu-") if metric.startswith("bleu-") else "auto")
    if metric == "exact-match":
        whole = f"whole lines alike, blanks at the ends aside, in percent of {len(pairs):,}"
        return Score(scores.values["exact_match"], whole, {"chrF": scores.values["chrf"]})
    beside = {"chrF": scores.values["chrf"], "exact match": scores.values["exact_match"]}
    return Score(scores.values["bleu"], scores.signatures["bleu"], beside)


def summed_loss(model: GPT, blocks: Int[Tensor, "B L1"], device: torch.device) -> float:
    """Of each token but the first of its row, in nats."""
    blocks = blocks.to(device)
    logits = model.logits(model.hidden(Rows.whole(blocks[:, :-1].contiguous())))
    return float(F.cross_entropy(logits.float().flatten(0, 1), blocks[:, 1:].flatten(), reduction="sum"))


@torch.no_grad()
def whole_loss(model: GPT, tokens: Int[Tensor, " N"], block: int, device: torch.device) -> float:
    """The mean over the whole text, in blocks of so many tokens that do not overlap: each token but the very first is
    asked for once, and sees what is before it in its block. The last block is as short as it happens to be."""
    asked = len(tokens) - 1
    full = asked // block
    whole = tokens[: full * block + 1].unfold(0, block + 1, block) if full else tokens.new_empty(0, block + 1)
    total = sum(summed_loss(model, rows, device) for rows in whole.split(ESTIMATE_ROWS) if len(rows))
    if asked % block:
        total += summed_loss(model, tokens[full * block :][None], device)
    return total / asked


@torch.no_grad()
def random_batches_loss(
    model: GPT,
    tokens: Int[Tensor, " N"],
    block: int,
    device: torch.device,
    *,
    batches: int = ESTIMATE_BATCHES,
    rows: int = ESTIMATE_ROWS,
    seed: int = 1337,
) -> float:
    """nanoGPT's estimate: the mean over so many batches of rows that begin anywhere (train.py, `estimate_loss`)."""
    if len(tokens) <= block:
        raise UserError(
            f"the validation text has {len(tokens)} tokens, which is no block of {block} and the next token"
        )
    draw = torch.Generator().manual_seed(seed)
    reach = torch.arange(block + 1)
    losses = []
    for _ in range(batches):
        first = torch.randint(len(tokens) - block, (rows,), generator=draw)
        losses.append(summed_loss(model, tokens[first[:, None] + reach], device) / (rows * block))
    return statistics.fmean(losses)


def validation_tokens(run: RunFolder) -> Int[Tensor, " N"]:
    """The validation text alone: the sign that ends a document is ours, not the text's."""
    tokens = TokenFile.open(run.path / "data" / "val.text").tokens
    end = len(tokens) - 1 if len(tokens) and tokens[-1] == EOS else len(tokens)
    return torch.from_numpy(tokens[:end].astype("int64"))


def loss_score(run: RunFolder) -> Score:
    device = device_of(run.recipe)
    model = run.load_model(device=device)
    if not isinstance(model, GPT):
        raise UserError(f"{run.path} is no GPT; the loss of the next token is that of a GPT")
    tokens, block = validation_tokens(run), run.recipe.model.block_size
    signature = f"nats a token, the last {len(tokens):,} tokens in blocks of {block} that do not overlap"
    estimate = random_batches_loss(model, tokens, block, device)
    named = f"estimate over {ESTIMATE_BATCHES} random batches of {ESTIMATE_ROWS} x {block}"
    return Score(whole_loss(model, tokens, block, device), signature, {named: estimate})


@contextmanager
def full_precision() -> Iterator[None]:
    """Training may have allowed matrix products in fewer bits; a score is not to depend on that."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def score(run: RunFolder, metric: Metric) -> Score:
    with full_precision():
        return loss_score(run) if metric == "loss" else text_score(run, metric)


# The clock


class FirstLook:
    """Tells when the run's log had its first line, which ties the log's clock to ours."""

    def __init__(self) -> None:
        self.at: float | None = None

    def on_log(self, report: StepReport) -> None:
        if self.at is None:
            self.at = time.perf_counter()

    def on_message(self, text: str) -> None:
        pass


@dataclass(frozen=True)
class Times:
    """Seconds."""

    preparation: float  # tokenizer and token files
    compilation: float  # and whatever else comes before steps take their usual time
    training: float  # all steps at their usual time
    validation: float
    saving: float  # and whatever else held the steps up
    scoring: float = 0.0


def usual_step(lines: Sequence[dict[str, Any]]) -> float | None:
    """Seconds, by the mean of the intervals in which nothing but training happened."""
    found = []
    for before, after in itertools.pairwise(lines):
        if "loss" in before and "loss" in after and after["step"] > before["step"]:
            found.append((after["clock"] - before["clock"]) / (after["step"] - before["step"]))
    if not found:
        return None
    median = statistics.median(found)
    return statistics.fmean(t for t in found if t <= 2 * median)


def times_of(lines: Sequence[dict[str, Any]], before_log: float, whole: float) -> Times:
    """From the lines of metrics.jsonl, the seconds before its clock began, and those of everything."""
    step = usual_step(lines)
    if step is None:
        return Times(before_log, 0.0, whole - before_log, 0.0, 0.0)
    first = next(line for line in lines if "loss" in line)
    compilation = max(0.0, first["clock"] - first["step"] * step)
    validation, last = 0.0, {"step": 0, "clock": compilation}
    for line in lines:
        if "loss" not in line:
            validation += max(0.0, line["clock"] - last["clock"] - (line["step"] - last["step"]) * step)
        last = line
    left = max(0.0, whole - before_log - compilation - validation)
    training = min(left, step * max(line["step"] for line in lines))
    return Times(before_log, compilation, training, validation, saving=left - training)


# A run, and what comes of some of them


@dataclass(frozen=True)
class Outcome:
    recipe: str
    seed: int
    folder: str
    score: float
    signature: str
    others: dict[str, float]
    times: Times
    steps: int
    tokens: int  # target tokens learned from
    parameters: int

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.times.training if self.times.training > 0 else 0.0


def begin_afresh() -> None:
    """Compiled functions of one run are of no use to the next, and after a few torch would stop compiling."""
    if torch.cuda.is_available():
        torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()


def train_and_score(recipe: Recipe, folder: Path, metric: Metric, *, overwrite: bool = False) -> Outcome:
    begin_afresh()
    look, began = FirstLook(), time.perf_counter()
    run = runs.train(recipe, folder, overwrite=overwrite, watchers=[look])
    ended = time.perf_counter()
    lines = run.metrics()
    logged = [line for line in lines if "loss" in line]
    before_log = look.at - logged[0]["clock"] - began if look.at is not None and logged else 0.0
    times = times_of(lines, before_log, ended - began)
    found = score(run, metric)
    times = replace(times, scoring=time.perf_counter() - ended)
    step = run.finished()
    state = run.checkpoints.state(run.checkpoints.steps()[-1])
    return Outcome(
        recipe=recipe.name,
        seed=recipe.train.seed,
        folder=str(folder),
        score=found.value,
        signature=found.signature,
        others=found.others,
        times=times,
        steps=step or 0,
        tokens=int(state["tokens"]),
        parameters=costs(run.recipe.model).parameters,
    )


def commit() -> str | None:
    """Of the checkout this code is in, if it is in one."""
    try:
        asked = ["git", "-C", str(Path(__file__).parents[2]), "rev-parse", "--short", "HEAD"]
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


@dataclass(frozen=True)
class Report:
    what: Reproduction
    outcomes: list[Outcome]
    beside: list[Outcome]
    goal: float
    passed: bool
    too_large: str  # empty, or why the model is not allowed
    device: str
    expected_s: float | None  # seconds of training a run, told beforehand
    facts: dict[str, Any]

    @property
    def scores(self) -> list[float]:
        return [one.score for one in self.outcomes]

    @property
    def median(self) -> float:
        return statistics.median(self.scores)

    @property
    def in_time(self) -> bool | None:
        """Whether training took no longer than the goal says; None where this is another machine, or it says nothing."""
        if self.what.within is None or self.what.where not in self.device:
            return None
        return statistics.median(one.times.training for one in self.outcomes) <= self.what.within

    def to_dict(self) -> dict[str, Any]:
        what = {key: value for key, value in asdict(self.what).items() if value is not None}
        spread = {
            "mean": statistics.fmean(self.scores),
            "median": self.median,
            "lowest": min(self.scores),
            "highest": max(self.scores),
            "deviation": statistics.stdev(self.scores) if len(self.scores) > 1 else None,
        }
        return {
            **what,
            "goal": self.goal,
            "passed": self.passed,
            "too_large": self.too_large or None,
            "in_time": self.in_time,
            **spread,
            "runs": [as_facts(one) for one in self.outcomes],
            "runs_beside": [as_facts(one) for one in self.beside],
            "expected_training_s": self.expected_s,
            "device": self.device,
            **self.facts,
        }


def as_facts(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome) | {"tokens_per_second": outcome.tokens_per_second}


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU ({platform.machine()}), {torch.get_num_threads()} threads"


def size_problem(what: Reproduction, outcomes: Sequence[Outcome], recipe: Recipe) -> str:
    """Why the model is larger than is allowed; empty where it is not. The most is counted with the same vocabulary."""
    if what.no_larger_than is None:
        return ""
    settings = [f"model.vocab_size={recipe.model.vocab_size}"]
    most = costs(read_recipe(what.no_larger_than, settings, presets=PRESETS).model).parameters
    found = max(one.parameters for one in outcomes)
    return f"{found:,} parameters, and {what.no_larger_than} has {most:,}" if found > most else ""


Tell = Callable[[str], None]


def announce(plan: Plan, name: str, times: int, tell: Tell) -> float:
    """Says how long it will take; the seconds of one training."""
    if not plan.fits or plan.tokens_per_second is None:
        raise UserError(f"{name} does not fit on {plan.device}: {plan.advice}")
    seconds = plan.steps * plan.step_tokens / max(1.0, plan.tokens_per_second)
    many = "" if times == 1 else f", {times} times"
    tell(
        f"{name} on {plan.device}: about {spoken(seconds)} of training{many} ({plan.steps:,} steps of "
        f"{plan.step_tokens:,.0f} target tokens at {plan.tokens_per_second:,.0f} a second, measured here); validation, "
        "compilation and scoring come on top"
    )
    return seconds


def spoken(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def reproduce(
    name: str,
    out: Path,
    *,
    data: Path | None = None,
    seeds: int | None = None,
    overrides: Sequence[str] = (),
    overwrite: bool = False,
    measure_first: bool = True,
    tell: Tell = lambda text: print(text, file=sys.stderr, flush=True),
) -> Report:
    """Train, score and judge; everything is left in `out`: a run folder a seed, and NAME.json."""
    what = reproduction(name)
    times = what.seeds if seeds is None else seeds
    if times < 1:
        raise UserError(f"--seeds must be at least 1, not {times}")
    settings = data_settings(what, data, out)
    names = [name] if what.beside is None else [name, what.beside]
    recipes = {each: recipe_of(each, what, settings, overrides) for each in names}
    folders = [out / f"{each}-seed-{recipes[each].train.seed + i}" for each in names for i in range(times)]
    if not overwrite and (there := next((f for f in folders if RunFolder.is_run(f)), None)) is not None:
        raise UserError(f"{there} holds a run already; choose another --out, or replace what is there by --overwrite")
    expected = None
    if measure_first:
        begin_afresh()
        expected = announce(make_plan(recipes[name], seconds=3.0), name, times * len(names), tell)
    outcomes: dict[str, list[Outcome]] = {each: [] for each in names}
    for i in range(times):
        for each in names:
            seed = recipes[each].train.seed + i
            tell(f"{each}, seed {seed} ({i + 1} of {times})")
            recipe = replace(recipes[each], train=replace(recipes[each].train, seed=seed))
            done = train_and_score(recipe, out / f"{each}-seed-{seed}", what.metric, overwrite=overwrite)
            tell(f"{each}, seed {seed}: {what.metric} {done.score:.4f}")
            outcomes[each].append(done)
    beside = outcomes[what.beside] if what.beside is not None else []
    goal = what.goal if what.goal is not None else what.margin + statistics.median(one.score for one in beside)
    trained = RunFolder.open(outcomes[name][0].folder).recipe
    too_large = size_problem(what, outcomes[name], trained)
    report = Report(
        what=what,
        outcomes=outcomes[name],
        beside=beside,
        goal=goal,
        passed=what.reached(statistics.median(one.score for one in outcomes[name]), goal) and not too_large,
        too_large=too_large,
        device=device_name(device_of(trained)),
        expected_s=expected,
        facts={
            "overrides": list(overrides),
            "glassformer": VERSION,
            "torch": torch.__version__,
            "commit": commit(),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        },
    )
    write_atomically(out / f"{name}.json", to_json(report.to_dict()))
    return report
