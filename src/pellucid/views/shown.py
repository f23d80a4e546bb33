"""How every result shows itself: its parts, handed to the renderer of a medium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pellucid.views.parts import AnyPart

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


class Shown:
    """A result that yields parts; `print`, rich, HTML, Markdown and a notebook cell follow from them."""

    def _parts(self) -> Iterator[AnyPart]:
        """Yield what every medium shows."""
        raise NotImplementedError

    def to_html(self, *, fragment: bool = False) -> str:
        """Return a self-contained HTML page without scripts, for light and dark.

        Args:
            fragment: leave out the page around it, to be placed inside another page.
        """
        from pellucid.views.page import page

        return page(self._parts(), fragment=fragment)

    def to_markdown(self) -> str:
        """Return the parts as Markdown, with tables in the form of GitHub; bars are left out."""
        from pellucid.views.markdown import markdown

        return markdown(self._parts())

    def to_text(self, *, width: int = 100) -> str:
        """Return what `print` shows, `width` characters wide."""
        from pellucid.views.terminal import plain

        return plain(self._parts(), width=width)

    def __str__(self) -> str:
        """Return the view for terminals as plain text."""
        return self.to_text()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Show the same in colour, for `rich.print`."""
        from pellucid.views.terminal import Lines

        yield Lines(self._parts())

    def _repr_html_(self) -> str:
        return self.to_html(fragment=True)
