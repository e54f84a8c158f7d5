"""What a checker says of a value; the table's reader adds file and line."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class Wrong(ValueError):
    """A value is not what it must be. ``at`` leads from the checked value to the part that is wrong."""

    def __init__(self, what: str, hint: str = "", at: tuple[str | int, ...] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.at = at

    def inside(self, *path: str | int) -> Wrong:
        """Return the same complaint seen from further out."""
        return Wrong(self.what, self.hint, (*path, *self.at))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence that names the closest known word, or all of them."""
    known = sorted(known)
    close = get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(known)}"
