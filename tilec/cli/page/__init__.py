"""`tilec explain --html`: one variant on one page."""

from tilec.cli.page.document import document

__all__ = ["document"]
