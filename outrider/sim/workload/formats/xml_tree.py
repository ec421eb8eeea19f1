"""XML as elements, read without entities or document types, and the line of the one that is wrong.

An error in a workload of ten thousand leases must name a line, and the standard library's elements know
none. To note it of each takes as long as all else: the file is read once more for the one that is wrong.
A document type is refused altogether: entities declared in it can make a small file expand without end,
and no workload needs them.
"""

from __future__ import annotations

import os
import stat
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from outrider.sim.workload.formats.files import BLOCK_BYTES, open_workload
from outrider.sim.workload.trace import WorkloadError


def read_xml(path: str | os.PathLike[str]) -> Element:
    """The document's outermost element. Nothing but elements and their attributes is kept."""
    where = os.fspath(path)
    parser, builder = expat.ParserCreate(), TreeBuilder()

    def refuse(*_: object) -> None:
        raise WorkloadError(
            f"{where}, line {parser.CurrentLineNumber}: a document type, which is not read "
            "because it can declare entities; delete it"
        )

    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.StartDoctypeDeclHandler = refuse
    _parse(parser, path)
    return builder.close()


def at_line(path: str | os.PathLike[str], root: Element, element: Element) -> str:
    """Where an element stands: the file and the line, as far as the file can be read a second time."""
    where = os.fspath(path)
    if not stat.S_ISREG(os.stat(path).st_mode):
        return where
    ahead = next(index for index, each in enumerate(root.iter()) if each is element)
    lines: list[int] = []
    parser = expat.ParserCreate()

    def start(*_: object) -> None:
        lines.append(parser.CurrentLineNumber)

    parser.StartElementHandler = start
    _parse(parser, path)
    return f"{where}, line {lines[ahead]}"


def _parse(parser: expat.XMLParserType, path: str | os.PathLike[str]) -> None:
    try:
        with open_workload(path) as file:
            while block := file.read(BLOCK_BYTES):
                parser.Parse(block, False)
            parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise WorkloadError(
            f"{os.fspath(path)}, line {error.lineno}: {expat.ErrorString(error.code)}; "
            "the file is not well-formed XML, or was cut"
        ) from error
