"""The page of a report: views in plain ES modules, and how they become one file."""

from glassformer.inspection.page.bundle import bundled, page_files, page_html

__all__ = ["bundled", "page_files", "page_html"]
