"""`glassformer recipes`: what can be trained by name, and how long it takes."""

from __future__ import annotations

from glassformer.config import RECIPE_FOLDER, read_recipe, recipe_names
from glassformer.language import _, localized
from glassformer.screen import BARE, FIXED, make_table, table_console


def recipes() -> None:
    """List the built-in recipes: what each learns and how long it takes."""
    columns = ("", FIXED | {"style": "bold"}), ""
    rows = [(name, localized(read_recipe(name).about)) for name in recipe_names()]
    console = table_console()
    console.print(make_table(columns, rows, show_header=False, **BARE))
    console.print(_("\nThey are TOML files in {recipe_folder}; copy one and change what you like.", RECIPE_FOLDER))
