"""Attention of other people's models in the page, as a notebook shows it: in a sandboxed frame of another page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassformer
from glassformer.errors import UserError
from tests.browser.report import WIDE, opened

pytestmark = pytest.mark.slow

VALUES = "() => [...document.querySelector('.large .heatmap').map.values]"


def bert_attentions(count: int) -> tuple[torch.Tensor, ...]:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 3, "hidden_size": 24, "intermediate_size": 32}
    bert = BertModel(BertConfig(vocab_size=50, initializer_range=0.5, **sizes), add_pooling_layer=False).eval()
    bert.set_attn_implementation("eager")
    return bert(torch.arange(1, count + 1)[None], output_attentions=True).attentions


def gpt_attentions(count: int) -> tuple[torch.Tensor, ...]:
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    gpt = GPT2Model(GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=50, initializer_range=0.5, **ends)).eval()
    gpt.set_attn_implementation("eager")
    return gpt(torch.arange(1, count + 1)[None], output_attentions=True).attentions


def in_a_notebook(report: Any, look: Any, folder: Path) -> Any:
    """The frame of a look, in a page that shows what its `_repr_html_` says."""
    path = folder / "notebook.html"
    path.write_text(f"<!doctype html><title>notebook</title><p>In [1]:</p>{look._repr_html_()}", encoding="utf-8")
    report.page.goto(path.as_uri())
    frame = report.page.wait_for_selector("iframe").content_frame()
    frame.wait_for_selector("html[data-ready=yes]")
    return frame


def test_bert_of_hugging_face(browser: Any, tmp_path: Path) -> None:
    """The tuple as it is, and the tokens of its tokenizer. Every map is there, the large one has the tuple's numbers; in words,
    the pieces of a word are put together: summed over keys, averaged over queries. Caught: a batch taken for heads, ## as a
    word of its own."""
    tokens = ["[CLS]", "the", "un", "##seen", "cat", "[SEP]"]
    attentions = bert_attentions(len(tokens))
    with opened(browser, WIDE) as report:
        frame = in_a_notebook(report, glassformer.attention_view(attentions, tokens, title="BERT"), tmp_path)
        assert frame.locator(".thumb").count() == 2 * 3 and frame.locator("[role=tab]").count() == 2
        frame.click(".thumb[data-layer='1'][data-head='2']")
        frame.wait_for_selector("#view[aria-busy=false]")
        expected = attentions[1][0, 2].detach().numpy()
        np.testing.assert_allclose(np.reshape(frame.evaluate(VALUES), expected.shape), expected, atol=1e-4)
        frame.click("[data-value=words]")
        frame.wait_for_selector("#view[aria-busy=false]")
        frame.wait_for_selector(".large text[data-row]:has-text('unseen')")
        keys = np.concatenate([expected[:, :2], expected[:, 2:4].sum(1, keepdims=True), expected[:, 4:]], axis=1)
        merged = np.concatenate([keys[:2], keys[2:4].mean(0, keepdims=True), keys[4:]])
        np.testing.assert_allclose(np.reshape(frame.evaluate(VALUES), merged.shape), merged, atol=1e-4)
        frame.click("[role=tab][data-view=lines]")
        frame.wait_for_selector("svg.links path", state="attached")
        assert report.complaints == []


def test_gpt_2_of_hugging_face(browser: Any, tmp_path: Path) -> None:
    """Known as causal by its zeros, so that the future is grey and not merely white; spaces are shown as such. Caught: a masked
    cell drawn as a weight of 0."""
    tokens = ["The", "Ġcat", "s", "Ġsat", "Ċ"]
    look = glassformer.attention_view(gpt_attentions(len(tokens)), tokens)
    assert look.data["text"] == "The cats sat \n" and look.data["sides"]["read"]["words"]["labels"][1] == "cats"
    with opened(browser, WIDE) as report:
        frame = in_a_notebook(report, look, tmp_path)
        labels = frame.locator(".large text[data-row]").all_text_contents()
        assert labels == ["The", "␣cat", "s", "␣sat", "⏎"]
        corner = (
            "() => [...document.querySelector('.large canvas.cells').getContext('2d').getImageData(4, 0, 1, 1).data]"
        )
        assert frame.evaluate(corner)[:3] == [222, 222, 226]
        assert "masked" in frame.inner_text(".large .legend") and report.complaints == []


def test_tokens_of_which_nothing_is_known_have_no_units(browser: Any, tmp_path: Path) -> None:
    """Caught: a choice between pieces, words and characters that changes nothing."""
    with opened(browser, WIDE) as report:
        frame = in_a_notebook(
            report, glassformer.attention_view([np.full((1, 3, 3), 1 / 3)], ["a", "b", "c"]), tmp_path
        )
        assert frame.locator("[data-value=words]").count() == 0 and report.complaints == []
    with pytest.raises(UserError, match="eager"):
        glassformer.attention_view((None, None), ["a", "b"])
