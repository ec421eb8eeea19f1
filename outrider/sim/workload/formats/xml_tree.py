"""XML as elements that know their line, read without entities or document types.

The standard library's ElementTree forgets line numbers, and an error in a workload of ten
thousand leases must name one. A document type is refused altogether: entities declared in
it can make a small file expand without end, and no workload needs them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from outrider.sim.workload.formats.files import BLOCK_BYTES, open_workload
from outrider.sim.workload.trace import WorkloadError

DEEPEST = 100


@dataclass(slots=True)
class Element:
    """A tag with its attributes and children; text between tags is not kept."""

    tag: str
    line: int
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)

    def find(self, tag: str) -> Element | None:
        for child in self.children:
            if child.tag == tag:
                return child
        return None

    def find_all(self, tag: str) -> Iterator[Element]:
        return (child for child in self.children if child.tag == tag)


def read_xml(path: str | os.PathLike[str]) -> Element:
    """The document's outermost element."""
    where = os.fspath(path)
    parser = expat.ParserCreate()
    top = Element("", 0, {})
    stack = [top]

    def start(tag: str, attributes: dict[str, str]) -> None:
        line = parser.CurrentLineNumber
        if len(stack) > DEEPEST:
            raise WorkloadError(
                f"{where}, line {line}: elements nested more than {DEEPEST} deep; this is not a workload file"
            )
        element = Element(tag, line, attributes)
        stack[-1].children.append(element)
        stack.append(element)

    def end(tag: str) -> None:
        stack.pop()

    def refuse(*_: object) -> None:
        raise WorkloadError(
            f"{where}, line {parser.CurrentLineNumber}: a document type, which is not read "
            "because it can declare entities; delete it"
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = refuse
    try:
        with open_workload(path) as file:
            while block := file.read(BLOCK_BYTES):
                parser.Parse(block, False)
            parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise WorkloadError(
            f"{where}, line {error.lineno}: {expat.ErrorString(error.code)}; "
            "the file is not well-formed XML, or was cut"
        ) from error
    return top.children[0]
