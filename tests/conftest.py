"""Shapes written in signatures are checked while tests run; in production they are only documentation.

Property tests try the same examples at every run of `make test`, so that it fails for everyone or for no one; `make soak`
looks for new ones."""

import os

from hypothesis import settings
from jaxtyping import install_import_hook

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile("new" if os.environ.get("GLASSFORMER_SOAK") else "same")

hook = install_import_hook("glassformer", "beartype.beartype")
hook.__enter__()
