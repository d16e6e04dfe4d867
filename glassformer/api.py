"""A trained model one can talk to.

    model = glassformer.load("runs/dates")
    model.translate(["3 mai 1979"])        # ["1979-05-03"]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from glassformer.config import Recipe, UserError
from glassformer.data.prepare import Texts
from glassformer.models import BERT, GPT, Transformer
from glassformer.nn.rows import Rows
from glassformer.run_folder import RunFolder
from glassformer.text.tokenizer import BOS, CONTROL, EOS


@dataclass(frozen=True)
class Label:
    label: str
    probability: float


class Model:
    """A model, its tokenizers and its recipe."""

    def __init__(self, model: Transformer | GPT | BERT, texts: Texts, recipe: Recipe) -> None:
        self.model, self.texts, self.recipe = model, texts, recipe

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def need(self, *kinds: str) -> None:
        kind = self.model.config.family if self.model.config.family != "bert" else self.model.config.head
        if kind not in kinds:
            can = {"transformer": "translate", "gpt": "generate", "mlm": "fill", "classify": "classify", "tag": "tag"}
            raise UserError(f"this run is a {self.model.config.family} ({kind}); what it can do is `{can[kind]}`")

    # ---- encoder-decoder

    def translate(self, texts: Sequence[str], *, batch_size: int = 128) -> list[str]:
        """One text for each text, in order; an empty one stays empty."""
        self.need("transformer")
        ids = self.texts.source.encode_batch(list(texts))
        order = sorted((i for i, s in enumerate(ids) if s), key=lambda i: len(ids[i]))
        out = [""] * len(ids)
        for start in range(0, len(order), batch_size):
            group = order[start : start + batch_size]
            for i, target in zip(group, self.greedy([ids[i] for i in group]), strict=True):
                out[i] = self.texts.target.decode(target)
        return out

    @torch.no_grad()
    def greedy(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        model = self.model
        assert isinstance(model, Transformer)
        rows = Rows.from_lists([[*s, EOS] for s in sources]).to(self.device)
        longest = 2 * rows.shape[1] + 20
        state = model.start(rows, longest)
        done: list[list[int]] = [[] for _ in sources]
        alive = list(range(len(sources)))
        last = torch.full((len(sources), 1), BOS, device=self.device)
        for _ in range(longest):
            scores: Tensor = model.step(last, state)[:, -1]
            scores[:, :CONTROL].masked_fill_(torch.arange(CONTROL, device=self.device) != EOS, -torch.inf)
            chosen = scores.argmax(-1)
            going = []
            for row, token in enumerate(chosen.tolist()):
                if token != EOS:
                    done[alive[row]].append(token)
                    going.append(row)
            if not going:
                break
            last = chosen[:, None]
            if len(going) <= 0.75 * len(alive):
                picked = torch.tensor(going, device=self.device)
                state.reorder(picked)
                last = last[picked]
                alive = [alive[row] for row in going]
            elif len(going) < len(alive):
                # A few that have ended stay in the batch and are read no further.
                for row in set(range(len(alive))) - set(going):
                    done.append([])
                    alive[row] = len(done) - 1
        return done[: len(sources)]

    # ---- encoder only

    def read(self, sentences: Sequence[Sequence[int]]) -> tuple[Rows, Tensor]:
        rows = Rows.from_lists([[BOS, *s] for s in sentences]).to(self.device)
        with torch.no_grad():
            return rows, self.model(rows).float()

    def classify(self, texts: Sequence[str], *, batch_size: int = 256) -> list[list[Label]]:
        """For each text all labels, the likeliest first."""
        self.need("classify")
        limit = self.model.config.block_size - 1
        ids = [s[:limit] for s in self.texts.target.encode_batch(list(texts))]
        out: list[list[Label]] = [[] for _ in ids]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        for start in range(0, len(order), batch_size):
            group = order[start : start + batch_size]
            _, logits = self.read([ids[i] for i in group])
            chances = logits[:, 0].softmax(-1).sort(descending=True)
            for i, values, classes in zip(group, chances.values.tolist(), chances.indices.tolist(), strict=True):
                out[i] = [Label(self.texts.labels[c], p) for p, c in zip(values, classes, strict=True)]
        return out

    def tag(self, sentences: Sequence[Sequence[str]], *, batch_size: int = 256) -> list[list[Label]]:
        """For each sentence (a list of words) the likeliest label of each word."""
        self.need("tag")
        tokenizer = self.texts.target
        pieces = [[p or tokenizer.encode("?") for p in tokenizer.encode_batch(list(words))] for words in sentences]
        out: list[list[Label]] = [[] for _ in pieces]
        order = sorted((i for i in range(len(pieces)) if pieces[i]), key=lambda i: len(pieces[i]))
        for start in range(0, len(order), batch_size):
            group = order[start : start + batch_size]
            _, logits = self.read([[t for word in pieces[i] for t in word] for i in group])
            best = logits.softmax(-1).max(-1)
            for row, i in enumerate(group):
                column = 1
                for word in pieces[i]:
                    label = self.texts.labels[int(best.indices[row, column])]
                    out[i].append(Label(label, float(best.values[row, column])))
                    column += len(word)
        return out


def load(run: str | Path, *, device: str = "cpu", step: int | None = None) -> Model:
    """The model of a run: its final weights, or those of the checkpoint of `step`."""
    folder = RunFolder.open(run)
    return Model(folder.load_model(step=step, device=device), folder.texts, folder.recipe)
