"""Images that some users call private, and images that nobody gets without a right to them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from outrider.metadata.workspace import ImageSection, WorkspaceFile
from outrider.service.ports import NodeImage, Readers
from outrider.service.requests import Reserve
from tests.simulation.dst.knobs import Knobs
from tests.simulation.dst.wire import image_of

PRIVATE_SHARE = 0.3
PLACES = ("", "elsewhere/")
"""Where somebody has the images, at the same server."""


class Privacy:
    """In every second world some call an image private that everybody gets; in some, one is for those alone
    who have a right to it: each user has. Drawn by itself, so that all other worlds are what they were."""

    def __init__(self, seed: int, knobs: Knobs, *, is_wanted: bool) -> None:
        self._random = random = Random(seed * 67_867_967 + 11)
        self._share = PRIVATE_SHARE if is_wanted and random.random() < 0.5 else 0.0
        is_any_closed = bool(self._share) and random.random() < 0.4
        self._closed = frozenset({random.randrange(len(knobs.images))} if is_any_closed else ())
        self.closed = frozenset(image_of(knobs, number).digest for number in self._closed)
        """Digests of images that nobody gets without a right to them."""

    def is_called_private(self, *numbers: int) -> bool:
        """Whether somebody who wants these calls them private."""
        return bool(self._share) and (
            self._random.random() < self._share or not self._closed.isdisjoint(numbers)
        )

    def asked(self, request: Reserve) -> Reserve:
        """The same request, whose images may be private now, all of them, and be had elsewhere."""
        if not self.is_called_private(*_numbers(request.workspace)):
            return request
        file = request.workspace
        metadata, deployment = file.metadata, file.deployment
        assert deployment is not None
        place = self._random.choice(PLACES)
        roles = tuple(
            each.model_copy(update={"image": _private(each.image, place)}) for each in metadata.roles
        )
        options = tuple(
            each.model_copy(update={"image": _private(each.image, place)}) for each in deployment.options
        )
        changed = {
            "metadata": metadata.model_copy(
                update={"image": _private(metadata.image, place), "roles": roles}
            ),
            "deployment": deployment.model_copy(update={"options": options}),
        }
        return replace(request, workspace=file.model_copy(update=changed))

    def line(self, *numbers: int) -> str:
        """What a job's script says of it."""
        return "private: true\n" if self.is_called_private(*numbers) else ""


def may_use(image: NodeImage | None, readers: Readers | None) -> bool:
    """Whether an image is there for all of these; None is everybody."""
    if image is None:
        return False
    if image.is_public:
        return True
    return readers is not None and image.readers is not None and set(readers.uids) <= set(image.readers.uids)


def _private(section: ImageSection | None, place: str) -> ImageSection | None:
    if section is None:
        return None
    uri = section.uri.replace("http://site/", f"http://site/{place}")
    return section.model_copy(update={"private": True, "uri": uri})


def _numbers(file: WorkspaceFile) -> list[int]:
    assert file.deployment is not None
    sections = [file.metadata.image, *(each.image for each in file.metadata.roles)]
    sections += [each.image for each in file.deployment.options]
    return [int(each.uri.rpartition("image")[2]) for each in sections if each is not None]
