"""Routes ask the service through this: answers of the right kind come back, or a refusal is raised."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

from cachemgr.base.shares import Share, Shares
from outrider.metadata.workspace import ImageSection
from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Answer, Trouble
from outrider.service.answers.site import ShareList
from outrider.service.front import Front, NotDone, WantedShares
from outrider.service.ports import FoundImage, ImageClaim, ImageTrouble, LoginBook, LoginFault, NotYet
from outrider.service.requests import Caller, Recall, Request, Reserve
from outrider.service.web.errors import ErrorProblem, of_trouble, of_unmade, refused
from outrider.service.web.limits import Limits, WebThreads
from outrider.service.web.requests.bodies import ReserveBody
from outrider.service.web.requests.understanding import (
    check_expiry,
    understand_price,
    understand_reservation,
    understand_starts,
    understand_zone,
)

Kind = TypeVar("Kind", bound=Answer)
Found = TypeVar("Found")
IMAGE_KEY = "metadata.image"
"""Where the image of a workspace is in its file, for whoever is told of a fault."""


class Asker:
    """Asks the front, within time. Two threads read workspaces, one does what administrators ask, and one
    counts shares for users."""

    def __init__(self, front: Front, limits: Limits) -> None:
        self.front = front
        self.limits = limits
        self._readers = WebThreads("workspaces to be read", threads=4, of_one=2)
        self._steward = WebThreads("administrators", threads=1, most_waiting=16)
        self.polls = Shares(
            "requests that wait for news",
            most=limits.polls,
            most_of_one=limits.polls_per_user,
            kept=limits.polls // 8,
        )
        self._keepers = WebThreads("logins to be checked", threads=2, of_one=1, most_waiting=64)
        self._counters = WebThreads("shares to be counted", threads=1, most_waiting=32)

    def has_place(self, caller: Caller) -> bool:
        """Whether one more of their requests may wait for news. If so, the place has to be given back."""
        if self.polls.held_by(caller.uid) >= self.polls.most_of_one:
            self.polls.refuse(caller.uid)
            return False
        return self.polls.take(caller.uid, is_privileged=caller.is_admin)

    def shares(self) -> list[Share]:
        all_threads = (self._readers, self._steward, self._counters, self._keepers)
        return [*(each for threads in all_threads for each in threads.shares()), *self.polls.shares()]

    def close(self) -> None:
        self._readers.close()
        self._steward.close()
        self._counters.close()
        self._keepers.close()

    async def ask(self, caller: Caller, request: Request, kind: type[Kind] | tuple[type[Kind], ...]) -> Kind:
        """The answer of this kind, or of one of these. A Trouble is raised as a refusal."""
        answer = await self.wait_for(self.front.ask(caller, request))
        if isinstance(answer, Trouble):
            raise of_trouble(answer)
        if not isinstance(answer, kind):
            raise TypeError(f"{type(request).__name__} was answered with a {type(answer).__name__}")
        return answer

    async def recalled(self, caller: Caller, key: str, hashed: str) -> Decision | None:
        """What a request with this key was answered before, without looking at what it asks for."""
        if not key:
            return None
        answer = await self.wait_for(self.front.ask(caller, Recall(key=key, request_hash=hashed)))
        if isinstance(answer, Trouble):
            if answer.code == "not-found":
                return None
            raise of_trouble(answer)
        if not isinstance(answer, Decision):
            raise TypeError(f"a recalled answer is a {type(answer).__name__}")
        return answer

    async def wanted(self, caller: Caller, body: ReserveBody) -> Reserve:
        """The reservation that a body asks for, with its image as found, or as it is expected to become."""
        now_s = self.front.now_s()
        workspace = await self.read(caller, lambda: understand_reservation(body, now_s))
        starts = await self.read(caller, lambda: understand_starts(body, workspace, now_s))
        roles = workspace.metadata.roles if workspace.metadata.has_unlike_roles else ()
        ways = () if workspace.deployment is None else workspace.deployment.options
        known: dict[ImageSection, FoundImage] = {}

        async def found(section: ImageSection | None, key: str) -> FoundImage | None:
            if section is not None and section not in known:
                known[section] = await self._resolve_or_expect(caller, section, key)
            return None if section is None else known[section]

        # Where each option has an image, nobody gets the workspace's.
        first = ways[0].image if ways and all(way.image for way in ways) else None
        own = first or workspace.metadata.image
        key = "deployment.options[0].image" if first else IMAGE_KEY
        image = known[own] = await self._resolve_or_expect(caller, own, key)
        role_images = [
            await found(role.image, f"metadata.roles[{number}].image") for number, role in enumerate(roles)
        ]
        option_images = [
            await found(way.image, f"deployment.options[{number}].image") for number, way in enumerate(ways)
        ]
        zone = understand_zone(body.zone)
        for each in known.values():
            check_expiry(workspace, starts, each, zone)
        return Reserve(
            role_images=tuple(role_images),
            option_images=tuple(option_images),
            workspace=workspace,
            image=image,
            account=body.account,
            zone=zone,
            starts=starts,
            most_price=understand_price(body.max_price),
            is_best_fit=body.best_fit,
        )

    async def _resolve_or_expect(
        self, caller: Caller, image: ImageSection, key: str = IMAGE_KEY
    ) -> FoundImage:
        """What is at an address; or what is expected to be made of that."""
        try:
            return await self.resolve(caller, image, key)
        except NotYet as error:
            if error.expected is None:
                raise of_unmade(str(error)) from error
            return replace(error.expected, unmade=str(error))

    async def resolve(self, caller: Caller, image: ImageSection, key: str = IMAGE_KEY) -> FoundImage:
        """What is at the address of an image, which has that key in its file. Raises NotYet while that is
        being made."""
        claim = ImageClaim(
            uri=image.uri,
            uid=caller.uid,
            digest=image.digest or "",
            format=image.format or "",
            is_private=image.private,
            gids=caller.gids,
        )
        resolved = self.front.resolve(claim)
        try:
            found = await self.wait_for(resolved)
        except NotYet:
            raise
        except ImageTrouble as error:
            problem = ErrorProblem(key=f"{key}.uri", message=str(error))
            raise refused(422, str(error), problems=[problem]) from error
        if image.size_bytes is not None and image.size_bytes != found.size_bytes:
            words = (
                f"{image.uri} has {found.size_bytes} bytes, not {image.size_bytes}: correct the size or "
                "leave it out"
            )
            problem = ErrorProblem(key=f"{key}.size", message=words)
            raise refused(422, words, problems=[problem])
        return found

    async def read(self, caller: Caller, function: Callable[[], Found]) -> Found:
        """What a function makes of a workspace's text."""
        return await self._readers.do(function, caller.uid, is_first=caller.is_admin)

    async def administer(self, caller: Caller, function: Callable[[], Found]) -> Found:
        """Something that blocks, for administrators alone."""
        check_admin(caller)
        try:
            return await self._steward.do(function)
        except NotDone as error:
            raise of_trouble(error.trouble) from error

    async def with_logins(self, caller: Caller, function: Callable[[LoginBook], Found]) -> Found:
        """What is done with the caller's logins, which may ask a registry."""
        try:
            book = self.front.logins()
            return await self._keepers.do(lambda: function(book), caller.uid, is_first=caller.is_admin)
        except NotDone as error:
            raise of_trouble(error.trouble) from error
        except LoginFault as fault:
            raise refused(422, str(fault)) from fault

    async def count(self, caller: Caller, wanted: WantedShares) -> ShareList:
        """Who takes what. Administrators do not wait for users who ask the same."""
        threads = self._steward if caller.is_admin else self._counters
        return await threads.do(
            lambda: self.front.shares(caller, wanted), caller.uid, is_first=caller.is_admin
        )

    async def wait_for(self, future: Future[Found]) -> Found:
        """What a Future brings. When the time is over it is left alone: the service may still do it."""
        wrapped = asyncio.wrap_future(future)
        wrapped.add_done_callback(_note_seen)
        try:
            return await asyncio.wait_for(asyncio.shield(wrapped), self.limits.answer_s)
        except TimeoutError as error:
            words = (
                f"there was no answer within {self.limits.answer_s:g} s, and it may still be done: ask again "
                "with the same Idempotency-Key"
            )
            raise refused(503, words, code="unavailable") from error
        except NotDone as error:
            raise of_trouble(error.trouble) from error


def check_admin(caller: Caller) -> None:
    if not caller.is_admin:
        words = f"{caller.user} is not an administrator of this service: ask one of them"
        raise refused(403, words, code="not-allowed")


def _note_seen(future: asyncio.Future[Found]) -> None:
    """An error that comes after nobody waits any more is no news."""
    if not future.cancelled():
        future.exception()
