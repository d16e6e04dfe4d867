"""What an external folder says of its model, looked at before anything is built.

A class or a setting that no model here can say is refused by its name. What files leave open is settled as transformers does:
an output layer that differs from the embedding is a layer of its own, whatever `tie_word_embeddings` says; of tied tables that
were saved once, the one that is there counts for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from glassformer.errors import UserError
from glassformer.formats.huggingface.dialects.dialect import Dialect, Tensors, labels_of, names_of, need
from glassformer.formats.huggingface.tables import half_split
from glassformer.language import _
from glassformer.nn.positions import sinusoids

SHARED, ENCODER, DECODER = (
    f"model.{part}.weight" for part in ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
)
COMPUTED = ("marian", "pegasus")  # classes that compute sinusoids, unless the file holds a table of its own


# ------------------------------------------------------------------------------------------------- what cannot be imported


def refuse_labels(hf: Mapping[str, Any], head: str) -> None:
    """Heads with labels that are not one of several classes."""
    if head not in ("classify", "tag"):
        return
    if hf.get("problem_type") == "multi_label_classification":
        raise UserError(
            "problem_type is multi_label_classification: any number of labels may hold at once, and a classifier here gives "
            "a text one of them, so it cannot be imported"
        )
    if hf.get("problem_type") == "regression" or len(labels_of(hf)) == 1:
        raise UserError("the head has one label, which is a number (regression) and no class, so it cannot be imported")


def refuse_settings(dialect: Dialect, hf: Mapping[str, Any]) -> None:
    """Settings of config.json that change what a model computes, and that no model here can say."""
    positions = str(hf.get("position_embedding_type", "absolute"))[:40]
    told = {
        "is_decoder": (
            dialect.family == "bert" and hf.get("is_decoder"),
            _("each token sees those before it alone, and an encoder here sees all"),
        ),
        "add_cross_attention": (
            (dialect.family == "bert" or dialect.name == "gpt2") and hf.get("add_cross_attention"),
            _("it reads what another model has encoded"),
        ),
        f"position_embedding_type {positions}": (
            positions not in ("None", "absolute"),
            _("distances are told inside attention by a table"),
        ),
        "relative_attention_num_buckets or relative_attention_max_distance": (
            (hf.get("relative_attention_num_buckets", 32), hf.get("relative_attention_max_distance", 128)) != (32, 128),
            _("distances have 32 buckets up to 128 here"),
        ),
        "pruned_heads": (hf.get("pruned_heads"), _("heads were taken out of some layers")),
        "quantization_config": (hf.get("quantization_config"), _("its weights are written in fewer bits")),
    }
    for name, (is_so, why) in told.items():
        if is_so:
            raise UserError("config.json has {name}: {why}; such a model cannot be imported", name, why)
    if dialect.name == "mbart":
        start, end = hf.get("decoder_start_token_id"), hf.get("eos_token_id", 2)
        if start != end or str(hf.get("tokenizer_class")).startswith("MBartTokenizer"):
            raise UserError(
                "this is an mBART-25, which reads the language behind a text and begins its answers by it (its "
                "decoder_start_token_id does not end texts); of mBART the 50 can be imported"
            )


# ------------------------------------------------------------------------------------------------------ what is left open


def tables_of(dialect: Dialect) -> tuple[str, str]:
    """What the embedding is called, and the output layer that may be tied to it."""
    names = names_of(dialect.names)
    return f"{names['embedding']}.weight", f"{names.get('mlm', names)['output']}.weight"


def settled(dialect: Dialect, hf: Mapping[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors]:
    """The config as the tensors have it, and the tensors with each table once; a class that cannot be imported is refused."""
    name, kind = dialect.class_of(hf), dialect.name
    if dialect.family == "bert":
        if name is None:  # what its file holds tells
            head = "mlm" if any(n.startswith(("cls.", "lm_head.")) for n in tensors) else "none"
            name = dialect.class_with(head)
        return settle_encoder(dialect, {**hf, "architectures": [name]}, tensors, dialect.classes[name])
    if dialect.family == "gpt":
        return settle_output(hf, tensors, tables_of(dialect), tied=names_of(dialect.names)["config"]["tied"])
    if kind == "marian" and not hf.get("share_encoder_decoder_embeddings", True):
        found, tensors = settle_output(hf, tensors, (DECODER, "lm_head.weight"), tied=True)
    else:
        found, tensors = settle_tables(hf, tensors)
    return (found | learned_positions(hf, tensors) if kind in COMPUTED else found), tensors


def settle_output(
    hf: Mapping[str, Any], tensors: Tensors, names: tuple[str, str], *, tied: bool
) -> tuple[dict[str, Any], Tensors]:
    """Is the output layer the embedding? `tied`: what is meant where config.json does not say."""
    table, output = names
    tied = bool(hf.get("tie_word_embeddings", tied))
    if tied and output in tensors:
        tensors = {table: tensors[output], **tensors}
        tied = torch.equal(tensors[table], tensors[output])
    if not tied and output not in tensors:
        raise UserError(
            "config.json says that the output layer is not the embedding (tie_word_embeddings is false), and the file has no "
            "{output}; such a model cannot be imported",
            output,
        )
    return {**hf, "tie_word_embeddings": tied}, tensors


def settle_encoder(dialect: Dialect, hf: dict[str, Any], tensors: Tensors, head: str) -> tuple[dict[str, Any], Tensors]:
    """The same of an encoder, whose output layer has a bias that is often saved twice; the layer's own is the one in use."""
    kind, tables = dialect.name, tables_of(dialect)
    refuse_labels(hf, head)
    if head != "mlm":
        return hf, tensors
    if kind != "bert" and hf.get("hidden_act") not in ("gelu", "gelu_python"):
        raise UserError(
            "hidden_act is {activation}, and the head of a {kind} has gelu all the same; here body and head "
            "have one activation, so it cannot be imported",
            str(hf.get("hidden_act"))[:40],
            kind,
        )
    own = f"{tables[1].removesuffix('.weight')}.bias"
    if own in tensors:
        tensors = {**tensors, own.replace(".decoder.", "."): tensors[own]}
    return settle_output(hf, tensors, tables, tied=True)


def settle_tables(hf: Mapping[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors]:
    """One table for source, target and output, or several: each as the file has it."""
    there = [n for n in (SHARED, DECODER, ENCODER, "lm_head.weight") if n in tensors]
    if not there:
        raise UserError("the file has no embedding of words ({shared})", SHARED)
    known = {n: tensors.get(n, tensors[there[0]]) for n in (ENCODER, DECODER)}
    found, tensors = settle_output(hf, tensors | known, (DECODER, "lm_head.weight"), tied=True)
    if torch.equal(known[ENCODER], known[DECODER]):
        return found, {n: t for n, t in tensors.items() if n not in known} | {SHARED: known[DECODER]}
    apart = {"share_encoder_decoder_embeddings": False}
    return found | apart, {n: t for n, t in tensors.items() if n != SHARED}


def learned_positions(hf: Mapping[str, Any], tensors: Tensors) -> dict[str, Any]:
    """Says whether tables of positions in a file are others than the sinusoids that the class would compute."""
    rows, width = need(hf, "max_position_embeddings"), need(hf, "d_model")
    for side in ("encoder", "decoder"):
        table = tensors.get(f"model.{side}.embed_positions.weight")
        if table is not None and table.shape == (rows, width) and width % 2 == 0:
            usual = sinusoids(rows, width)[:, half_split(width)]
            if float((table - usual).abs().max()) > 1e-2:  # more than 16 bits make of it
                return {"learned_positions": True}
    return {}
