"""Placeholders of programs and addresses in a text: what is no language, and stays to the byte.

A rule that is too wide leaves a word untranslated, one that is too narrow breaks a program. So `%` after a number is a per
cent sign, unless what follows can be nothing else, and `:name` stands alone, without a letter or a digit before it.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator

FORMAT = r"[-+0\#']*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|[Lqjzt](?=[a-zA-Z]))?"  # of printf: flags, width, precision, length
OUTSIDE = r"\s<>\"'，。；：！？、（）「」"  # of an address
BRACKETS = rf"\([^{OUTSIDE}()\[\]]*\)|\[[^{OUTSIDE}()\[\]]*\]"  # within one, and so they belong to it
PLACEHOLDER = re.compile(
    rf"""
      (?:(?i:https?|ftps?|sftp)://|(?<![\w.])(?i:www)\.(?=\w))        # an address of the web
        (?:{BRACKETS}|(?!{BRACKETS})[^{OUTSIDE}])*(?:{BRACKETS}|[^{OUTSIDE}.,;:!?()\[\]])
    | (?<![\w.%+-])[a-zA-Z0-9_.%+-]++@[a-zA-Z0-9-]+(?:\.[a-zA-Z0-9-]+)+   # of mail
    | <%(?:[^<%]|%(?!>))*+%>                                          # <%= x %>
    | \{{{{2,3}}[^{{}}]*\}}{{2,3}} | \{{%[^{{}}]*%\}}                          # {{{{name}}}}, {{% if x %}}
    | \{{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,             # ICU's, whole
        (?:[^{{}}]++|\{{(?:[^{{}}]++|\{{[^{{}}]*+\}})*+\}})*+\}}
    | [$%\#]?\{{(?:\s*[^{{}}\s]+(?:\s+[^{{}}\s]+){{0,2}}\s*)?\}}      # {{name}}, {{0}}, {{}}, {{user name}}, ${{name}}, %{{n}}
    | %\([^()]+\){FORMAT}[a-zA-Z]                                     # %(name)s
    | %\d+\${FORMAT}[a-zA-Z@]                                         # %1$s
    | %%
    | (?<![\d%])(?<!\d[ \xa0])%(?:L?\d\d?(?!\w|\.\d)|{FORMAT}[a-zA-Z@](?![a-zA-Z]{{3}}))  # %s, %-5.2f, %dms, %1
    | (?:(?<=\d)|(?<=\d[ \xa0]))%{FORMAT}[sd@](?![a-zA-Z'’])          # 3 %s, 3%s, and not 50 % der
    | (?<![^\s("'\[«“‘]):(?!([a-zA-Z])\1+(?!\w))[a-zA-Z_][a-zA-Z0-9_]+(?!\w)   # :name, and not :D or :DD
    """,
    re.VERBOSE,
)
NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,:]\d+)*(?![\w])")


def placeholders(text: str, before: str = "", *, numbers: bool = False) -> Iterator[tuple[int, int]]:
    """Where the placeholders and addresses of a text begin and end, and its numbers where they are asked for. `before`: what
    stands in front of it.

    >>> [("%s of {n}, 50 % sure")[a:b] for a, b in placeholders("%s of {n}, 50 % sure")]
    ['%s', '{n}']
    """
    whole, at = before + text, len(before)
    found = (PLACEHOLDER.finditer(whole, at), NUMBER.finditer(whole, at) if numbers else ())
    taken = 0
    for match in heapq.merge(*found, key=lambda match: (match.start(), -match.end())):
        if match.start() >= taken:
            taken = match.end()
            yield match.start() - at, match.end() - at
