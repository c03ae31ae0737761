"""What a test reads off a page: its text, its elements, its tables."""

import html.parser
import re

_VOID = {"meta", "img", "br", "link", "input", "hr"}


class Page(html.parser.HTMLParser):
    """Elements with their attributes, the text of the page, and its tables as lists of rows."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.tables, self._open, parts = [], {}, [], []
        self._parts, self._cell, self._rows, self._caption = parts, None, None, None
        self.feed(text)
        assert not self._open, f"never closed: {self._open}"
        self.text = re.sub(r"\s+", " ", "".join(parts)).replace("\xa0", " ")

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "table":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th", "caption"):
            self._cell = []

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag, tag
        if tag in ("td", "th", "caption"):
            text = " ".join("".join(self._cell).split()).replace("\xa0", " ")
            if tag == "caption":
                self._caption = text
            else:
                self._rows[-1].append(text)
            self._cell = None
        elif tag == "table":
            self.tables[self._caption] = self._rows

    def handle_data(self, data):
        if self._open[-1:] != ["style"]:
            self._parts.append(data)
        if self._cell is not None:
            self._cell.append(data)

    def named(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]

    def table(self, beginning):
        (found,) = [rows for name, rows in self.tables.items() if name.startswith(beginning)]
        return found

    def row(self, beginning, first):
        (found,) = [row for row in self.table(beginning) if row[0] == first]
        return dict(zip(self.table(beginning)[0], found, strict=True))
