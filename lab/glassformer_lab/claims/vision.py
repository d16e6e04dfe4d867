"""The same encoder on pictures: patches in the place of words. Classified, and captioned by the same decoder."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.models import GPT, Transformer
from glassformer.models.costs import shapes_alone
from glassformer.nn.masks import AttentionMask
from glassformer.nn.rows import as_rows
from glassformer.nn.taps import record
from glassformer.plots import MAP, figure
from glassformer_lab.claims.claim import Budget, Measured, Results
from glassformer_lab.claims.pictures import LABELS, NUMBER, PATCH, SIDE, WORDS, Scene, digit, patches, scene
from glassformer_lab.claims.training import TrainArgs, downsample, drawn, parameters, small, train

GRID = SIDE // PATCH


class PictureDecoder(nn.Module):
    """Early fusion: patches and words in one row, read by one decoder; the words see the patches before them."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        sizes = {"n_layer": 5, "n_embd": width, "n_hidden": 256}
        self.body = small(GPT, **sizes, vocab_size=len(WORDS), block_size=GRID * GRID + 32)
        self.patch = nn.Linear(3 * PATCH * PATCH, width)
        self.positions = nn.Embedding.from_pretrained(0.02 * torch.randn(GRID * GRID, width), freeze=False)

    def captions(self, pictures: Float[Tensor, "B 3 H W"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """The scores of what may follow each word of the captions."""
        seen = self.patch(patches(pictures)) + self.positions.weight
        words = as_rows(target, None)
        own = self.body.block_inputs(words, causal=True)
        x = self.body.decoder_input(words.tokens, words.broadcast_positions, words.n_positions, own.real)
        row = as_rows(torch.zeros(len(x), seen.size(1) + x.size(1), dtype=torch.long), None)
        out = self.body.decoder(torch.cat([seen, x], 1), self.body.block_inputs(row, causal=True))
        return self.body.logits(out[:, seen.size(1) :].contiguous())


def baseline(arm: str, wanted: int) -> nn.Module:
    """A classifier that knows nothing of patches: linear, a perceptron with a hidden layer, or convolutions, the last two with
    about so many parameters."""
    inputs, outputs = 3 * SIDE * SIDE, max(len(LABELS), 10)
    if arm == "linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs))
    if arm == "mlp":
        hidden = wanted // (inputs + outputs + 1)
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))

    def net(width: int) -> nn.Module:
        layers: list[nn.Module] = []
        for before, after in ((3, width), (width, 2 * width), (2 * width, 4 * width)):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, outputs))

    with shapes_alone():
        width = min(range(4, 80), key=lambda one: abs(parameters(net(one)) - wanted))
    return net(width)


class PictureReader(nn.Module):
    """Our Transformer with patches in the place of source words: a linear map of each, and a learned place in the picture.

    `captions` are written by its decoder as it is; a class is read off the mean of the encoder's output."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        sizes = {"n_layer": 2, "n_embd": width, "n_hidden": 256}
        self.body = small(Transformer, **sizes, vocab_size=len(WORDS), block_size=GRID * GRID)
        self.patch = nn.Linear(3 * PATCH * PATCH, width)
        self.positions = nn.Embedding.from_pretrained(0.02 * torch.randn(GRID * GRID, width), freeze=False)
        self.label = nn.Linear(width, max(len(LABELS), 10))

    def encode(self, pictures: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B N C"]:
        """The encoder's output at each patch."""
        x = self.patch(patches(pictures)) + self.positions.weight
        nothing = as_rows(torch.zeros(x.shape[:2], dtype=torch.long), None)
        return self.body.encoder(x, self.body.block_inputs(nothing, causal=False))

    def classes(self, pictures: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B L"]:
        """A score for each label."""
        return self.label(self.encode(pictures).mean(1))  # type: ignore[no-any-return]

    def captions(self, pictures: Float[Tensor, "B 3 H W"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """The scores of what may follow each word of the captions."""
        rows = as_rows(target, None)
        inputs = self.body.block_inputs(rows, causal=True, cross_mask=AttentionMask())
        x = self.body.decoder_input(rows.tokens, rows.broadcast_positions, rows.n_positions, inputs.real)
        return self.body.logits(self.body.decoder(x, inputs, self.body.decoder.project_memory(self.encode(pictures))))


def batch(count: int, draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Fresh pictures, their labels, and their captions from <begin> to <end> (left out of ones that are shorter)."""
    with torch.device("cpu"):  # many small operations
        scenes: list[Scene] = [scene(draw) for _ in range(count)]
    rows = [[NUMBER["<begin>"], *(NUMBER[word] for word in one.caption.split()), NUMBER["<end>"]] for one in scenes]
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[NUMBER["<end>"]] * (longest - len(row))] for row in rows])
    pictures = torch.stack([one.picture for one in scenes])
    return pictures.to(ids.device), torch.tensor([one.label for one in scenes]), ids


def digits(count: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Fresh digits, and which they are."""
    numbers = drawn(0, 10, count, draw)
    with torch.device("cpu"):
        pictures = torch.stack([digit(number, draw) for number in numbers])
    labels = torch.tensor(numbers)
    return pictures.to(labels.device), labels


def trial(budget: Budget, job: str, arm: str, seed: int) -> Measured:
    """Train on fresh pictures, test on others; of a captioner, where it looks while it writes."""
    reader, generator = PictureReader(), torch.Generator().manual_seed(seed)
    encoder = sum(map(parameters, (reader.body.encoder, reader.patch, reader.positions, reader.label)))
    model: Any = reader
    if arm == "one decoder":
        model = PictureDecoder()
    elif arm != "transformer":
        model = baseline(arm, encoder)

    def classes(pictures: Tensor) -> Tensor:
        return model.classes(pictures) if model is reader else model(pictures)  # type: ignore[no-any-return]

    def draw() -> tuple[Tensor, Tensor]:
        if job == "digits":
            return digits(32, generator)
        pictures, labels, ids = batch(32, generator)
        return pictures, ids if job == "caption" else labels

    def loss(pictures: Tensor, labels: Tensor) -> tuple[Tensor, int]:
        if job == "caption":
            scores = model.captions(pictures, labels[:, :-1].contiguous())
            labels = labels[:, 1:].contiguous()
            return F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="sum"), labels.numel()
        return F.cross_entropy(classes(pictures), labels, reduction="sum"), len(labels)

    # Muon is for the matrices of layers; the others learn by AdamW.
    muon = 0.02 if arm in ("transformer", "one decoder") else 0.0
    losses = train(model, draw, loss, TrainArgs(budget.steps(1500), muon=muon))
    unseen = torch.Generator().manual_seed(987_654_321 + seed)
    pictures, labels, ids = batch(400, unseen)
    if job == "digits":
        pictures, labels = digits(400, unseen)
    model.eval()
    with torch.no_grad():
        if job == "caption":
            right = (model.captions(pictures, ids[:, :-1].contiguous()).argmax(-1) == ids[:, 1:]).all(-1)
        else:
            right = classes(pictures).argmax(-1) == labels
    count = encoder if model is reader and job != "caption" else parameters(model)
    found: Measured = {"accuracy": 100 * float(right.double().mean()), "curve": downsample(losses), "parameters": count}
    if job == "caption" and arm == "transformer" and seed == 0:
        with torch.no_grad(), record(model.body, "decoder.*.cross.weights") as seen:
            model.captions(pictures[:1], ids[:1, :-1].contiguous())
        last = list(seen.values())[-1][0].mean(0)  # target x patches, the heads' mean
        words = [WORDS[i] for i in ids[0, 1:].tolist()]
        found |= {"picture": pictures[0].permute(1, 2, 0).tolist(), "words": words, "weights": last.tolist()}
    return found


def draw(results: Results) -> Any:
    """A picture, and where the captioner looks as it writes each word."""
    found = next(m for _, m in results.where(job="caption") if "weights" in m)
    words = [word for word in found["words"] if word != "<end>"]
    across = 5
    down = -(-(len(words) + 1) // across)
    fig, axes = figure(2.0 * across, 2.2 * down, nrows=down, ncols=across, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    axes.flat[0].imshow(found["picture"])
    axes.flat[0].set_title("the picture", fontsize=9)
    for axis, word, weights in zip(list(axes.flat)[1:], words, found["weights"], strict=False):
        axis.imshow(found["picture"], extent=(0, GRID, GRID, 0), alpha=0.35)
        squares = [weights[i : i + GRID] for i in range(0, len(weights), GRID)]
        axis.imshow(squares, cmap=MAP, alpha=0.65, extent=(0, GRID, GRID, 0))
        axis.set_title(word, fontsize=9)
    return fig


def facts(results: Results) -> Measured:
    """The sizes of the pictures."""
    return {"side": SIDE, "patches": GRID * GRID}
