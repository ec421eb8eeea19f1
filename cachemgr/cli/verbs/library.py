"""The verb `library`: the pool's container images as a folder of names, for programs that look for files.

Links lead to whole images and to nothing else: what is arriving has no path. A link whose image has been
evicted leads nowhere, and whoever follows it fetches the image as without Outrider.
"""

from __future__ import annotations

import hashlib
import os

from cachemgr.base.errors import BadRequest
from cachemgr.cli.answers import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from cachemgr.cli.arguments import VerbParsers
    from cachemgr.cli.session import VerbSession
    from cachemgr.protocol import ImageEntry

# Later ones win: Apptainer opens both.
FORMATS = ("squashfs", "sif")
HUB = "docker.io/"
LIBRARY = "library/"
STYLES = ("all", "nextflow", "snakemake", "apptainer")


def add(commands: VerbParsers) -> None:
    library = commands.add(
        "library",
        _library,
        "link the container images that are here into a folder, by the names under which tools look",
        "library $TMPDIR/images",
        "library --style nextflow $NXF_SINGULARITY_LIBRARYDIR",
    )
    library.add_argument("folder", metavar="FOLDER", help="your own folder; it is made if it is not there")
    library.add_argument("--style", choices=STYLES, default="all", help="whose names; default: all")


def names(uri: str, style: str = "all") -> Iterator[str]:
    """What tools call the image of a reference in their folders."""
    scheme, divider, rest = uri.partition("://")
    if not divider:
        return
    bare = rest.partition("@")[0]
    short = bare[len(HUB) :] if bare.startswith(HUB) else bare
    forms = [bare, short, short[len(LIBRARY) :] if short.startswith(LIBRARY) else short]
    for form in dict.fromkeys(forms):
        if style in ("all", "nextflow"):
            yield _nextflow(form)
        if style in ("all", "snakemake"):
            url = f"{scheme}://{form}".encode()
            yield f"{hashlib.md5(url, usedforsecurity=False).hexdigest()}.simg"
    if style in ("all", "apptainer"):
        last = bare.rpartition("/")[2]
        yield last if last.endswith(".sif") else f"{last.replace(':', '_')}.sif"


def _nextflow(name: str) -> str:
    ending = ".img"
    if ".sif:" in name:
        name, ending = name.replace(".sif:", "-"), ".sif"
    elif name.endswith(".sif"):
        name, ending = name[: -len(".sif")], ".sif"
    return name.replace(":", "-").replace("/", "-") + ending


def _library(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import ListedImages

    listed = read(ListedImages, session.ask("ls", doing="listing the images"))
    wanted = links(listed.images, arguments.style)
    folder = arguments.folder
    try:
        os.makedirs(folder, mode=0o755, exist_ok=True)
        made = fill(folder, wanted)
    except OSError as error:
        raise BadRequest(f"{folder}: {error.strerror}: name a folder of your own") from error
    session.show({"folder": folder, "links": made}, "\n".join(made))


def links(images: tuple[ImageEntry, ...], style: str) -> dict[str, str]:
    """The paths of images by names. Of several with one name the last that came is meant."""
    found = [each for each in images if each.path and each.format in FORMATS]
    found.sort(key=lambda each: (FORMATS.index(each.format), each.added_s, each.digest))
    return {name: each.path or "" for each in found for name in names(each.uri, style) if _is_name(name)}


def fill(folder: str, wanted: dict[str, str]) -> list[str]:
    """Make the links, one step each; what is no link of that name is left as it is."""
    made = []
    for name, path in sorted(wanted.items()):
        place, beside = os.path.join(folder, name), os.path.join(folder, f".{name[:200]}.{os.getpid()}.new")
        if os.path.lexists(place) and not os.path.islink(place):
            continue
        if not os.path.islink(place) or os.readlink(place) != path:
            os.symlink(path, beside)
            os.replace(beside, place)
        made.append(name)
    return made


def _is_name(name: str) -> bool:
    return 0 < len(name) <= 255 and "/" not in name and not name.startswith(".")
