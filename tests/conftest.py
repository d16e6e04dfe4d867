"""Shapes written in signatures are checked while tests run; in production they are only documentation."""

from jaxtyping import install_import_hook

hook = install_import_hook("glassformer", "beartype.beartype")
hook.__enter__()
