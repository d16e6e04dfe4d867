"""The languages that M2M100's own folders mean by `language_codes`: their tokens stand behind the vocabulary, in this order.

The codes and their order are fairseq's, as its M2M100 models were trained with them; the folders name the list and do not
hold it.
"""

from __future__ import annotations

M2M100 = """
af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu
hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt
ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu
"""

LANGUAGES = {"m2m100": tuple(M2M100.split()), "wmt21": ("en", "ha", "is", "ja", "cs", "ru", "zh", "de")}
