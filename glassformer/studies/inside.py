"""Everything about one sentence in one model, as plain arrays: what the views of `look` are drawn from.

A sentence is first laid before the model as it was in training (`lay`), with the answer it is to be watched giving: its own,
or one that is forced on it. Then one eager pass is listened to (`see`): every attention's queries, keys, values and weights,
what each part adds to the residual stream, and what the output layer makes of the stream after each block (the logit lens,
nostalgebraist 2020). From the weights alone follows the attention rollout (Abnar and Zuidema 2020).

A row of cross-attention belongs to the token that is being chosen there, a row of self-attention to the token just read.

The module draws nothing and writes nothing; it knows neither pages nor files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.api import MASK_MARKER, Model, check_text
from glassformer.checkpoint import load_model_tensors, problem, read_checkpoint
from glassformer.decode import BeamTrace, Hypothesis, generate_batch, translate_batch
from glassformer.errors import UserError
from glassformer.models import BERT, GPT, Transformer, build_model
from glassformer.models.bert import sentence_means
from glassformer.nn.block import Stack
from glassformer.nn.positions import alibi_slopes
from glassformer.nn.rows import Rows
from glassformer.nn.taps import record
from glassformer.run_folder import RunFolder, served_weights
from glassformer.text.tokenizer import BOS, EOS, MASK, UNK, Tokenizer
from glassformer.text.units import Reading, Units, reading

ALTERNATIVES = 8  # best words kept for each output
LENS_DEEP = 5  # and for each place of the lens
BEAM = 4  # the tree of a model that by itself searches greedily or draws
NEW = 12  # tokens a GPT goes on with

Array = np.ndarray
Kind = Literal["encoder", "decoder", "cross"]


# ---- the sentence


class Note(NamedTuple):
    """Something a reader should know, in the languages of the page."""

    en: str
    zh: str


@dataclass(frozen=True)
class Laid:
    """One sentence as the model reads it. `labels[i]` is what is to be said at place i of the row: None where nobody knows,
    and only the `places` are asked. Of the row the first `given` tokens came from the reader."""

    source: list[int]  # of an encoder-decoder; else empty
    row: list[int]
    labels: list[int | None]
    places: list[int]
    given: int
    words: list[int] | None = None  # the first token of each word, where the row was made word by word
    notes: list[Note] = field(default_factory=list)


def read_text(tokenizer: Tokenizer, text: str, what: str) -> tuple[list[int], list[Note]]:
    """Its ids, and a note on each word the vocabulary does not have. An unknown character is refused: nothing of it would
    reach the model."""
    check_text(text)
    if not text.strip():
        raise UserError(f"{what} is empty; there is nothing to look at")
    ids = tokenizer.encode(text)
    if not ids:
        raise UserError(f"{what} has no token that this model knows; there is nothing to look at")
    unknown = [text[start:end] for token, (start, end) in zip(ids, tokenizer.spans(text)) if token == UNK]
    if unknown and tokenizer.kind == "char":
        first = unknown[0]
        raise UserError(
            f"{what} has the character {first!r} (U+{ord(first[0]):04X}), which is not in this model's vocabulary; "
            "write it without"
        )
    if len(unknown) == len(ids):
        raise UserError(f"{what} has no word that is in this model's vocabulary; there is nothing to look at")
    return ids, [
        Note(f"{word!r} is not in the vocabulary; the model reads <unk>", f"词表中没有 {word!r}；模型读到的是 <unk>")
        for word in dict.fromkeys(unknown)
    ]


def refuse_longer(ids: Sequence[int], most: int, what: str) -> None:
    if len(ids) > most:
        raise UserError(f"{what} has {len(ids)} tokens, and this model reads {most} at once; shorten it")


def lay_pair(model: Model, text: str, target: str | None) -> tuple[list[int], list[int] | None, list[Note]]:
    """Source ids as laid, target ids as they are."""
    longest = model.model.config.block_size
    source, notes = read_text(model.tokenizers.source, text, "the text")
    wanted = None
    if model.kind == "transformer":
        refuse_longer(source, min(longest, model.recipe.data.max_length or longest) - 1, "the text")
        if target is not None:
            wanted, more = read_text(model.tokenizers.target, target, "the target")
            refuse_longer(wanted, longest - 1, "the target")
            notes += [note for note in more if note not in notes]
        return [*source, EOS], wanted, notes
    refuse_longer(source, longest - 3, "the text")
    if target is not None:
        wanted, more = read_text(model.tokenizers.target, target, "the target")
        refuse_longer([*source, *wanted], longest - 2, "the text and the target together")
        notes += [note for note in more if note not in notes]
    return [BOS, *source, EOS], wanted, notes


def lay_written(model: Model, source: list[int], answer: list[int], ended: bool, notes: list[Note]) -> Laid:
    """A source and the answer to it, for the encoder-decoder and for a GPT that answers."""
    labels: list[int | None] = [*answer, EOS if ended else None]
    if model.kind == "transformer":
        return Laid(source, [BOS, *answer], labels, list(range(len(labels))), 1, notes=notes)
    row = [*source, *answer]
    unasked: list[int | None] = [None] * (len(source) - 1)
    places = list(range(len(source) - 1, len(row)))
    return Laid([], row, unasked + labels, places, len(source), notes=notes)


def lay_continued(model: Model, prompt: list[int], more: list[int], notes: list[Note]) -> Laid:
    """A GPT's text and what it goes on with: each token is to be said at the place before it."""
    row = [*prompt, *more]
    return Laid([], row, [*row[1:], None], list(range(len(row))), len(prompt), notes=notes)


def lay_bert(model: Model, text: str) -> Laid:
    tokenizer = model.tokenizers.target
    check_text(text)
    if model.kind == "mlm":
        bare = MASK_MARKER.sub(" ", text)
        notes: list[Note] = []
        if bare.strip():
            _, notes = read_text(tokenizer, bare, "the text")
        if not text.strip():
            raise UserError("the text is empty; there is nothing to look at")
        masked = bool(MASK_MARKER.search(text))
        ids = model.masked_ids(text) if masked else tokenizer.encode(text)
        refuse_longer(ids, model.reads, "the text")
        row = [BOS, *ids]
        places = [i for i, token in enumerate(row) if token == MASK] if masked else list(range(1, len(row)))
        if not masked:
            notes = [
                *notes,
                Note(
                    "no [MASK]: at each place the model says what it reads there",
                    "没有 [MASK]：模型在每个位置说出它读到的内容",
                ),
            ]
        return Laid([], row, [None if token == MASK else token for token in row], places, len(row), notes=notes)
    if model.kind == "classify":
        ids, notes = read_text(tokenizer, text, "the text")
        refuse_longer(ids, model.reads, "the text")
        row = [BOS, *ids]
        return Laid([], row, [None] * len(row), [0], len(row), notes=notes)
    if not text.strip():
        raise UserError("the text is empty; there is nothing to look at")
    row, firsts, notes = [BOS], [], []
    for word in model.words_of(text):
        ids, more = read_text(tokenizer, word, "the text")
        notes += [note for note in more if note not in notes]
        firsts.append(len(row))
        row += ids
    refuse_longer(row[1:], model.reads, "the text")
    return Laid([], row, [None] * len(row), firsts, len(row), words=firsts, notes=notes)


# ---- the search


@dataclass(frozen=True)
class Search:
    """The story of a beam, and the answers it found, best first."""

    beam: int
    answers: list[Hypothesis]
    trace: BeamTrace


def search(model: Model, ids: list[int], *, beam: int | None, new: int) -> tuple[Hypothesis | None, Search | None]:
    """What the model answers to ids as laid, and the tree of a beam search. Without `beam` the answer is that of the recipe,
    as `translate` gives it, and where that has no beam the tree is that of a small one. What would be drawn is searched."""
    net = model.model
    own = model.settings().beams if model.settings().temperature == 0 else 1
    wide = beam if beam is not None else own if own > 1 else BEAM
    answer_beam = wide if beam is not None or own > 1 else 1
    how: dict[str, Any] = {"temperature": 0.0, "strict": False}
    if model.kind == "gpt":
        room = min(new, net.config.block_size - len(ids))
        if room < 1:
            return None, None
        how["max_new_tokens"] = room
    elif model.kind == "gpt on pairs":
        room = net.config.block_size - len(ids)
        how["max_new_tokens"] = max(1, min(model.settings().max_new_tokens or room, room))

    def find(width: int, trace: bool) -> list[Hypothesis]:
        settings = model.settings(beam=width, n_best=width if trace else 1, **how)
        run: Any = translate_batch if isinstance(net, Transformer) else generate_batch
        return run(net, [ids], settings, controls=model.controls, text=model.tokenizers.target.decode, trace=trace)[0]

    found = find(wide, True)
    assert found[0].trace is not None
    answer = found[0] if answer_beam == wide else find(answer_beam, False)[0]
    return answer, Search(wide, found, found[0].trace)


# ---- one pass, listened to


@dataclass(frozen=True)
class Says:
    """What a distribution over words says at each place. `chosen` is the word in question: the label, or the likeliest."""

    chosen: Int[Array, " n"]
    logprob: Float[Array, " n"]  # of the chosen; natural logarithm
    rank: Int[Array, " n"]  # of the chosen, from 1
    entropy: Float[Array, " n"]  # nats
    best: Int[Array, "n top"]
    chances: Float[Array, "n top"]  # of the best


def says(logits: Float[Tensor, "n V"], chosen: Int[Tensor, " n"], top: int) -> Says:
    logprobs = logits.double().log_softmax(-1)
    own = logprobs.gather(1, chosen[:, None])
    best = logprobs.topk(min(top, logprobs.size(1)))
    return Says(
        chosen.numpy(),
        own[:, 0].numpy(),
        ((logprobs > own).sum(1) + 1).numpy(),
        -(logprobs.exp() * logprobs.clamp(min=-1e4)).sum(1).numpy(),
        best.indices.numpy(),
        best.values.exp().numpy(),
    )


@dataclass(frozen=True)
class AttentionLayer:
    """One attention of one layer. Head h is called `numbers[h]` and asks the keys of head `shares[h]`."""

    numbers: list[int]
    shares: list[int]
    slopes: list[float] | None  # ALiBi's, of each head
    q: Float[Array, "H T D"]
    k: Float[Array, "K S D"]
    v: Float[Array, "K S Dv"]
    weights: Float[Array, "H T S"]


@dataclass(frozen=True)
class Norms:
    """Lengths of vectors, for each layer and token: the residual stream as it enters the layer, what each part adds, and the
    stream as it leaves."""

    entering: Float[Array, "L T"]
    parts: dict[str, Float[Array, "L T"]]  # attention, cross, mlp
    leaving: Float[Array, "L T"]


@dataclass(frozen=True)
class Seen:
    attentions: dict[str, list[AttentionLayer]]  # by kind
    norms: dict[str, Norms]  # by stack
    outputs: Says  # at the places
    lens: list[Says]  # the same after 0, 1, 2 … blocks
    loss: float | None  # mean over the places that have a label

    def weights(self, kind: str) -> list[Float[Array, "H T S"]]:
        return [layer.weights for layer in self.attentions[kind]]


KINDS: dict[str, dict[str, str]] = {
    "transformer": {"encoder": "encoder.{}.attention", "decoder": "decoder.{}.attention", "cross": "decoder.{}.cross"},
    "gpt": {"decoder": "decoder.{}.attention"},
    "bert": {"encoder": "encoder.{}.attention"},
}
"""The attentions of each family by kind."""


def attention_layer(net: Any, path: str, taps: dict[str, Tensor]) -> AttentionLayer:
    part = net.get_submodule(path)
    numbers = list(part.numbers)
    group = max(1, part.n_head // max(1, part.n_kv_head))
    shares = part.shares or [h // group for h in range(part.n_head)]
    slopes = None
    if net.config.positions == "alibi" and not path.endswith("cross"):
        every = alibi_slopes(net.config.n_head)
        slopes = [every[number] for number in numbers]
    q, k, v, weights = (taps[f"{path}.{name}"][0].float().cpu().numpy() for name in ("q", "k", "v", "weights"))
    return AttentionLayer(numbers, list(shares), slopes, q, k, v, weights)


def stack_norms(stack: Stack, name: str, taps: dict[str, Tensor]) -> Norms:
    def lengths(tap: str) -> Array:
        found = [taps[f"{name}.{layer}.{tap}"][0].float().norm(dim=-1) for layer in range(stack.depth)]
        return torch.stack(found).cpu().numpy()

    parts = {"attention": lengths("attention.out")}
    if stack.layers[0].has_cross:
        parts["cross"] = lengths("cross.out")
    return Norms(lengths("in"), parts | {"mlp": lengths("mlp.out")}, lengths("residual"))


def lens_logits(net: Any, stack: Stack, x: Float[Tensor, "B T C"], row: Rows) -> Float[Tensor, "T V"]:
    """What the model would say if its last block had left `x`."""
    x = x if stack.norm is None else stack.norm(x, None)
    pools = isinstance(net, BERT) and net.pools
    return net.logits(sentence_means(x, row) if pools else x)[0]


@torch.no_grad()
def see(net: Transformer | GPT | BERT, laid: Laid) -> Seen:
    """One pass in evaluation mode, every attention on the explicit path."""
    training = net.training
    net.eval()
    device = next(net.parameters()).device
    row = Rows.whole(torch.tensor([laid.row], device=device))
    patterns = ("*.q", "*.k", "*.v", "*.weights", "*.in", "*.residual", "*.attention.out", "*.mlp.out")
    cross = ("*.cross.out",) if isinstance(net, Transformer) else ()
    try:
        with record(net, *patterns, *cross) as taps:
            if isinstance(net, Transformer):
                logits = net(Rows.whole(torch.tensor([laid.source], device=device)), row)[0]
            else:
                logits = net(row)[0]
        writer: Stack = net.encoder if isinstance(net, BERT) else net.decoder
        name = "encoder" if isinstance(net, BERT) else "decoder"
        places = torch.tensor(laid.places)
        logits = logits.float().cpu()[places]
        labels = [laid.labels[place] for place in laid.places]
        likeliest = logits.argmax(-1).tolist()
        chosen = torch.tensor([best if label is None else label for best, label in zip(likeliest, labels)])
        outputs = says(logits, chosen, ALTERNATIVES)
        stream = [taps[f"{name}.0.in"], *(taps[f"{name}.{layer}.residual"] for layer in range(writer.depth))]
        lens = [says(lens_logits(net, writer, x, row).float().cpu()[places], chosen, LENS_DEEP) for x in stream]
    finally:
        net.train(training)
    attentions = {
        kind: [
            attention_layer(net, path.format(layer), taps)
            for layer in range(net.config.encoder_layers if kind == "encoder" else net.config.n_layer)
        ]
        for kind, path in KINDS[net.config.family].items()
    }
    stacks = {part: getattr(net, part) for part in ("encoder", "decoder") if hasattr(net, part)}
    norms = {part: stack_norms(stack, part, taps) for part, stack in stacks.items()}
    known = [i for i, label in enumerate(labels) if label is not None]
    loss = float(-outputs.logprob[known].mean()) if known else None
    return Seen(attentions, norms, outputs, lens, loss)


# ---- what follows from the weights


def merge(
    weights: Float[Array, "*h T S"], queries: Sequence[int], keys: Sequence[int]
) -> Float[Array, "*h queries keys"]:
    """Weights between groups of tokens, given the group of each: summed over the keys of a group, averaged over its queries.
    So a row still adds up to what it did."""
    to_keys = np.zeros((len(keys), max(keys) + 1))
    to_keys[np.arange(len(keys)), list(keys)] = 1
    to_queries = np.zeros((max(queries) + 1, len(queries)))
    to_queries[list(queries), np.arange(len(queries))] = 1
    to_queries /= to_queries.sum(axis=1, keepdims=True)
    return to_queries @ weights @ to_keys


def head_mean(weights: Float[Array, "H T S"]) -> Float[Array, "T S"]:
    """Without heads (all pruned) nothing is passed on."""
    return weights.astype(np.float64).mean(axis=0) if len(weights) else np.zeros(weights.shape[1:])


def rollout(seen: Seen, *, residual: bool = True) -> dict[str, Float[Array, "L T S"]]:
    """How much of each input token has come to each place after each layer, if every block passes on half of what it had and
    half of what its attention looked at (the mean of its heads); of two attentions, one after the other. The rows of an
    encoder add up to one; those of a decoder that has a source do so over its own tokens and the source's together."""
    stay = 0.5 if residual else 0.0

    def through(layers: list[Array]) -> Array:
        found = np.eye(layers[0].shape[-1])
        out = []
        for weights in layers:
            # A mean of heads whose rows add up to one; without any head, all of it stays.
            keep = stay if len(weights) else 1.0
            found = keep * found + (1 - keep) * head_mean(weights) @ found
            out.append(found)
        return np.stack(out)

    out = {}
    if "encoder" in seen.attentions:
        out["encoder"] = through(seen.weights("encoder"))
    if "decoder" in seen.attentions and "cross" not in seen.attentions:
        out["decoder"] = through(seen.weights("decoder"))
    if "cross" in seen.attentions:
        source = out["encoder"][-1]
        length = seen.weights("decoder")[0].shape[-1]
        own, from_source = np.eye(length), np.zeros((length, len(source)))
        depths: tuple[list[Array], list[Array]] = ([], [])
        for self_weights, cross_weights in zip(seen.weights("decoder"), seen.weights("cross")):
            keep = stay if len(self_weights) else 1.0
            step = keep * np.eye(length) + (1 - keep) * head_mean(self_weights)
            own, from_source = step @ own, step @ from_source
            keep = stay if len(cross_weights) else 1.0
            own, from_source = keep * own, keep * from_source + (1 - keep) * head_mean(cross_weights) @ source
            depths[0].append(own)
            depths[1].append(from_source)
        out["decoder"], out["cross"] = np.stack(depths[0]), np.stack(depths[1])
    return out


def alignment(seen: Seen) -> Float[Array, "T S"] | None:
    """Where the decoder looked in the source: the mean over the layers and heads of cross-attention."""
    layers = [head_mean(w) for w in seen.weights("cross") if len(w)] if "cross" in seen.attentions else []
    return np.mean(layers, axis=0) if layers else None


# ---- all of it


@dataclass(frozen=True)
class Moment:
    """The same sentence at one checkpoint."""

    step: int
    name: str
    seen: Seen


@dataclass(frozen=True)
class Inside:
    model: Model
    text: str
    answer: str | None  # what was written, or forced; None where nothing is written
    forced: bool
    laid: Laid
    seen: Seen
    search: Search | None
    across: list[Moment] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.model.kind

    @property
    def residual(self) -> bool:
        return self.model.model.config.residual

    @property
    def labels_are_words(self) -> bool:
        """Of the vocabulary; else classes or tags."""
        return self.kind not in ("classify", "tag")

    def names(self, ids: Sequence[int]) -> list[str]:
        """What is said, to be read."""
        if self.labels_are_words:
            return self.model.tokenizers.target.pieces(ids)
        return [self.model.tokenizers.labels[int(i)] for i in ids]

    def readings(self) -> dict[str, Reading]:
        """The axes of the maps. source: what the encoder reads; read: what the other stack reads; written: what is chosen at
        each of its places."""
        target, row = self.model.tokenizers.target, self.laid.row
        found = {"read": reading(target, row, self.laid.words)}
        if self.kind == "transformer":
            found["source"] = reading(self.model.tokenizers.source, self.laid.source)
        if self.labels_are_words and self.kind != "mlm":
            found["written"] = reading(target, [int(i) for i in self.seen.outputs.chosen])
        elif self.kind == "mlm":
            found["written"] = alone(self.names(self.seen.outputs.chosen.tolist()))
        elif self.kind == "tag":
            found["written"] = alone(found["read"].words.labels[1:])  # the first is BOS
        else:
            found["written"] = alone(self.names(self.seen.outputs.chosen.tolist()))
        return found

    def axes(self, kind: str) -> tuple[str, str]:
        """The readings along the queries and along the keys of a kind of attention."""
        if kind == "cross":
            return "written", "source"
        own = "source" if kind == "encoder" and self.kind == "transformer" else "read"
        return own, own


def alone(labels: list[str]) -> Reading:
    """Each a unit by itself, whatever the unit."""
    units = Units(list(range(len(labels))), labels)
    return Reading(labels, units, units)


DOES = {"gpt": "goes on with a text", "mlm": "fills in masks", "classify": "classifies texts", "tag": "tags words"}


def look_inside(
    model: Model, text: str, target: str | None = None, *, beam: int | None = None, new: int = NEW
) -> Inside:
    """Lay the sentence before the model, let it answer (or force `target` on it), and see."""
    if target is not None and model.kind not in ("transformer", "gpt on pairs"):
        raise UserError(f"--target is an answer to a text, and this run {DOES[model.kind]}; leave it out")
    if beam is not None and beam < 1:
        raise UserError(f"--beam must be at least 1, not {beam}")
    if beam is not None and isinstance(model.model, BERT):
        raise UserError("this run is a BERT, which searches nothing; leave out --beam")
    if new < 0:
        raise UserError(f"--new must be at least 0, not {new}")
    answer, found = None, None
    if model.kind in ("transformer", "gpt on pairs"):
        source, wanted, notes = lay_pair(model, text, target)
        hypothesis, found = search(model, source, beam=beam, new=new)
        assert hypothesis is not None
        ids, ended = (hypothesis.ids, hypothesis.ended == "eos") if wanted is None else (wanted, True)
        longest = model.model.config.block_size - (0 if model.kind == "transformer" else len(source) - 1)
        if len(ids) > longest - 1:
            ids, ended = ids[: longest - 1], False
            notes = [
                *notes,
                Note(
                    f"the answer is longer than the model's block; its first {longest - 1} tokens are shown",
                    f"答案比模型的块长；只显示前 {longest - 1} 个词元",
                ),
            ]
        laid = lay_written(model, source, ids, ended, notes)
        answer = model.tokenizers.target.decode(ids)
    elif model.kind == "gpt":
        prompt, notes = read_text(model.tokenizers.target, text, "the text")
        refuse_longer(prompt, model.model.config.block_size, "the text")
        hypothesis, found = search(model, prompt, beam=beam, new=new)
        more = [] if hypothesis is None else [*hypothesis.ids, *([EOS] if hypothesis.ended == "eos" else [])]
        laid = lay_continued(model, prompt, more[: model.model.config.block_size - len(prompt)], notes)
        answer = None if hypothesis is None else model.tokenizers.target.decode(hypothesis.ids)
    else:
        laid = lay_bert(model, text)
    return Inside(model, text, answer, target is not None, laid, see(model.model, laid), found)


def kept_weights(run: RunFolder) -> list[tuple[int, str, dict[str, Tensor]]]:
    """Every checkpoint and snapshot of a run that is whole, in the order of their steps; last the final weights, where they
    are not those of the last checkpoint. Those one would use: the moving average, where there is one."""
    folders = {step: run.snapshots.path(step) for step in run.snapshots.steps()}
    folders |= {step: run.checkpoints.path(step) for step in run.checkpoints.steps()}
    found = []
    for step, folder in sorted(folders.items()):
        if problem(folder) is None:
            found.append((step, str(step), served_weights(read_checkpoint(folder)[0])))
    if run.final.is_dir() and problem(run.final) is None:
        tensors, state = read_checkpoint(run.final)
        final = served_weights(tensors)
        last = found[-1][2] if found else {}
        if last.keys() != final.keys() or any(not torch.equal(last[name], final[name]) for name in final):
            found.append((int(state.get("step", found[-1][0] if found else 0)), "final", final))
    return found


def look_across(run: RunFolder, inside: Inside) -> Inside:
    """The same sentence, with the same answer, at every kept checkpoint."""
    kept = kept_weights(run)
    if len(kept) < 2:
        raise UserError(
            f"{run.path} keeps {len(kept)} checkpoint{'s' if len(kept) != 1 else ''}, and there is nothing to compare; "
            "train with a larger train.keep_last and a smaller train.save_every"
        )
    net = build_model(run.recipe.model).eval()
    # At each checkpoint the same words are in question, whatever it would say itself.
    labels = list(inside.laid.labels)
    for place, chosen in zip(inside.laid.places, inside.seen.outputs.chosen):
        labels[place] = int(chosen)
    laid = replace(inside.laid, labels=labels)
    moments = []
    for step, name, weights in kept:
        load_model_tensors(net, weights)
        moments.append(Moment(step, name, see(net, laid)))
    return replace(inside, across=moments)
