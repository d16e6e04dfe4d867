"""CTranslate2: a model as its specification says it, and the engines `int8` and `ctranslate2`."""
