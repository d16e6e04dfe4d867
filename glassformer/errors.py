"""What goes wrong and can be put right by the person at the keyboard: one sentence each."""

from __future__ import annotations


class UserError(ValueError):
    """Something the person at the keyboard can put right; the message is one sentence that says what, where and how."""


class ConfigError(UserError):
    """A setting of a recipe, a parameter or an option that cannot be, or that another one rules out."""
