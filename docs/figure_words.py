"""The words in the figures of the tour, in Chinese. A text that is not here (a word of an example, a formula) stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

CHINESE = {
    "scores: Q K$^T$ / √d": "分数：Q Kᵀ / √d",
    "weights: softmax of each row,\nnothing from the future": "权重：每行作 softmax，\n不看未来",
    "output: weights V": "输出：权重 V",
    'how much of each key answers "fruit"': "每个键对“水果”答了多少",
    "apple": "苹果",
    "banana": "香蕉",
    "chair": "椅子",
    "value": "值",
    "weight · value": "权重 · 值",
    "gradient that gets through\n(size of d weights / d scores)": "传得过去的梯度\n（d 权重 / d 分数的大小）",
    "head size d": "每头维度 d",
    "standard deviation of the scores": "分数的标准差",
    "the largest of ten weights": "十个权重里最大的",
    "with 1/√d": "有 1/√d",
    "without 1/√d": "没有 1/√d",
    "who may see whom (blue: allowed)": "谁能看见谁（蓝：允许）",
    "causal": "因果",
    "padding": "填充",
    "window of 3, causal": "窗口为 3，因果",
    "segments": "分段",
    "segments, causal": "分段，因果",
    "segments, cross": "分段，交叉",
    "query": "查询",
    "key": "键",
    "query: target token": "查询：目标词元",
    "key: source token": "键：源词元",
    "PE(p) · PE(q), as a share of the largest": "PE(p) · PE(q)，占最大值的比例",
    "dimension": "维度",
    "distance": "距离",
    "position": "位置",
    "what tends to zero, and how slowly": "趋于零的，以及有多慢",
    "words": "词",
    "+ positions": "+ 位置",
    "= what layer 1 reads": "= 第 1 层读到的",
    "cosine": "余弦",
    "sine": "正弦",
    "what the marked number depends on (blue)": "标出的数取决于哪些（蓝）",
    "batch norm": "批归一化",
    "layer norm": "层归一化",
    "instance norm": "实例归一化",
    "group norm, 2 groups": "组归一化，2 组",
    "feature": "特征",
    "layer whose input it is (the loss is at the right)": "是哪一层的输入（损失在右边）",
    "size of the gradient": "梯度的大小",
    "with residual lines": "有残差连接",
    "without residual lines": "没有残差连接",
    "alpha 0: none": "alpha 0：不除",
    "gnmt, 0.6 (the paper's)": "gnmt，0.6（论文）",
    "gnmt, 1": "gnmt，1",
    "divisor of its log-probability": "对数概率除以什么",
    "length of the hypothesis": "候选的长度",
    "cosine of the angle each pair is turned by": "每对转过的角的余弦",
    "one query, one key, every place:\nonly the distance counts": "一个查询、一个键，放在各处：\n只看距离",
    "pair of dimensions": "第几对维度",
    "position of the key": "键的位置",
    "position of the query": "查询的位置",
    "ALiBi: each head has its own slope": "ALiBi：每个头有自己的斜率",
    "added to the score": "加到分数上的",
    "distance from query to key": "查询到键的距离",
    "slope": "斜率",
    "loss (nats)": "损失（nat）",
    "loss, and where it is least": "损失，以及最小处",
    "probability the model gives to the right word": "模型给正确词的概率",
    "right": "正确",
    "target probability": "目标概率",
    "what the model is told": "告诉模型的",
    "learning rate": "学习率",
    "step": "步",
}
NUMBERED = {
    r"dim (\d+)": r"维度 \1",
    r"key (\d+)": r"键 \1",
    r"token (\d+)": r"词元 \1",
    r"head (\d+)": r"头 \1",
    r"dimensions (\d+), (\d+)": r"维度 \1、\2",
    r"width (\d+)": r"宽 \1",
    r"the table, width (\d+)": r"表，宽 \1",
    r"([\d.]+) at distance (\d+)": r"距离 \2 处为 \1",
    r"sentence (\d+), token (\d+)": r"第 \1 句，词元 \2",
    r"sentence (\d+), padding": r"第 \1 句，填充",
    r"smoothing ([\d.]+)": r"平滑 \1",
    r"the (\d+) words": r"\1 个词",
}
"""Texts with numbers in them."""


def chinese(text: str) -> str:
    """A text of a figure in Chinese, where there is one.

    >>> chinese("token 3"), chinese("query"), chinese("I like to code")
    ('词元 3', '查询', 'I like to code')
    """
    for pattern, replacement in NUMBERED.items():
        if match := re.fullmatch(pattern, text):
            return match.expand(replacement)
    return CHINESE.get(text, text)


def reword(fig: Any, say: Callable[[str], str]) -> None:
    """Puts every text of a figure through `say`, those at the ticks of its axes too."""
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter, ScalarFormatter

    for axes in fig.axes:
        for axis in (axes.xaxis, axes.yaxis):
            own = axis.get_major_formatter()
            if type(own) is FuncFormatter or (not isinstance(own, ScalarFormatter) and hasattr(own, "_units")):
                axis.set_major_formatter(FuncFormatter(lambda value, place, own=own: say(own(value, place))))
    for text in fig.findobj(Text):
        text.set_text(say(text.get_text()))
