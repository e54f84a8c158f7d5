"""Where each key of a TOML text stands: the standard parser keeps values only, an error wants its line."""

from __future__ import annotations

from bisect import bisect_right

Path = tuple["str | int", ...]


def scan(text: str) -> dict[Path, int]:
    """Return the line of every table, key and array element of a TOML text that is known to be valid."""
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Path, int] = {}
        self._starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
        self._arrays: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        self._blank()
        while self.at < len(self.text):
            if self._peek() == "[":
                table = self._header()
            else:
                self._pair(table)
            self._blank()

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _mark(self, path: Path) -> None:
        line = bisect_right(self._starts, self.at)
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], line)

    def _blank(self) -> None:
        while self.at < len(self.text) and self._peek() in " \t\r\n#":
            if self._peek() == "#":
                self._to("\n")
            else:
                self.at += 1

    def _to(self, stops: str) -> None:
        while self.at < len(self.text) and self._peek() not in stops:
            self.at += 1

    def _header(self) -> Path:
        start, doubled = self.at, self.text.startswith("[[", self.at)
        self.at += 2 if doubled else 1
        path = self._keys("]")
        if doubled:
            count = self._arrays[path] = self._arrays.get(path, -1) + 1
            path = (*path, count)
        after, self.at = self.at, start
        self._mark(path)
        self.at = after + (2 if doubled else 1)
        return path

    def _keys(self, end: str) -> Path:
        keys: list[str | int] = []
        while True:
            self._blank()
            keys.append(self._key(end))
            self._blank()
            if self._peek() != ".":
                return tuple(keys)
            self.at += 1

    def _key(self, end: str) -> str:
        start = self.at
        if self._peek() in "\"'":
            self._string()
            return self.text[start + 1 : self.at - 1]
        self._to(f" \t\r\n.{end}")
        return self.text[start : self.at]

    def _pair(self, table: Path) -> None:
        start = self.at
        path = (*table, *self._keys("="))
        after, self.at = self.at, start
        self._mark(path)
        self.at = after + 1
        self._value(path)

    def _value(self, path: Path) -> None:
        self._blank()
        kind = self._peek()
        if kind and kind in "\"'":
            self._string()
        elif kind == "[":
            self._many("]", lambda index: self._element(path, index))
        elif kind == "{":
            self._many("}", lambda index: self._pair(path))
        else:
            self._to(",]}\n#")

    def _element(self, path: Path, index: int) -> None:
        self._mark((*path, index))
        self._value((*path, index))

    def _many(self, end: str, each: object) -> None:
        assert callable(each)
        self.at += 1
        index = 0
        self._blank()
        while self._peek() not in (end, ""):
            each(index)
            index += 1
            self._blank()
            if self._peek() == ",":
                self.at += 1
                self._blank()
        self.at += 1

    def _string(self) -> None:
        quote = self._peek()
        end = quote * 3 if self.text.startswith(quote * 3, self.at) else quote
        self.at += len(end)
        while self.at < len(self.text) and not self.text.startswith(end, self.at):
            self.at += 2 if self._peek() == "\\" and quote == '"' else 1
        self.at += len(end)
        while len(end) == 3 and self._peek() == quote:
            self.at += 1
