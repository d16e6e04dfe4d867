"""`glassformer recipes`: what can be trained by name, and how long it takes."""

from __future__ import annotations

from glassformer.config import RECIPE_FOLDER, read_recipe, recipe_names
from glassformer.language import _, localized
from glassformer.screen import table_console


def recipes() -> None:
    """List the built-in recipes: what each learns and how long it takes."""
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name in recipe_names():
        table.add_row(name, localized(read_recipe(name).about))
    console = table_console()
    console.print(table)
    console.print(
        _("\nThey are TOML files in {recipe_folder}; copy one and change what you like.", recipe_folder=RECIPE_FOLDER)
    )
