"""Rights to images that are on a node for others: who may use them, and what shows a right to them."""

from __future__ import annotations

from collections.abc import Collection

from cachemgr.base.errors import BadRequest, NotAllowed
from cachemgr.protocol import (
    PROOF,
    AddRequest,
    ArrivingEntry,
    ListedTransfers,
    NameRequest,
    NoFields,
    Readers,
    ShownImage,
    TransferEntry,
)
from outrider.service.images.catalogue import Catalogue
from outrider.service.nodes.asking import Asking
from outrider.service.ports import KNOWN, READ, Fetch, NodeTrouble, OrderResult, Pin


class Rights:
    """The images of one node, as far as they are not everybody's."""

    def __init__(self, asking: Asking, node: str, catalogue: Catalogue) -> None:
        self._asking = asking
        self._node = node
        self._catalogue = catalogue

    def let_in(self, order: Fetch, wanted: AddRequest) -> OrderResult | TransferEntry:
        """What is there is for others: whoever has `wanted` it has to have a right to it, too. A transfer, if
        it is read to know that."""
        if order.proof != KNOWN:
            found = self._asked(order)
            if found.code != NotAllowed.code or order.proof != READ:
                return found
        if order.proof == READ:
            return self._asking.order("add", wanted.changed(proof=True), TransferEntry)
        right = {"private": False} if order.readers is None else {"vouched": True}
        self._asking.send("add", wanted.changed(**right))
        return OrderResult(order=order)

    def of_pinned(self, order: Pin) -> OrderResult:
        """The same of what is pinned by now: READ, while its bytes are read to know that; or why they could
        not be, or are others."""
        found = self._asked(order)
        reading = self._reading(order) if found.code == NotAllowed.code else None
        if reading is None:
            return found
        if reading.ended_s is None:
            return OrderResult(order=order, code=READ)
        return OrderResult(order=order, code=reading.error or "", words=reading.message or "")

    def _asked(self, order: Fetch | Pin) -> OrderResult:
        try:
            return self.check(order, self._shown(order))
        except NotAllowed as error:
            return OrderResult(order=order, code=error.code, words=str(error))

    def _reading(self, order: Pin) -> TransferEntry | None:
        """The last one at that address, if it has not succeeded."""
        key, uri = f"{PROOF}{order.digest.removeprefix('sha256:')} ", self._catalogue.source_of(order.uri)
        transfers = self._asking.order("transfers", NoFields(), ListedTransfers).transfers
        # They come in the order in which they began. Of an address with a query a node shows a hash of that.
        address = key + uri.partition("?")[0]
        found = [each for each in transfers if each.key == address or each.key.startswith(f"{address}?")]
        return found[-1] if found and (found[-1].ended_s is None or found[-1].error) else None

    def check(
        self, order: Fetch | Pin, image: ShownImage | ArrivingEntry, joined: Collection[int] = ()
    ) -> OrderResult:
        """A private image that was begun for others: the users of this one have to be able to use it.

        Nobody is let in because the service says so: a user has to have a right to the source
        from which the image came, which the daemon finds out itself.
        """
        made = self._catalogue.made(order.uri, order.digest)
        # Nor has who may name one object of a bucket shown a right to another by its digest.
        is_shown = not order.uri.startswith("s3://") or image.uri == order.uri
        if order.readers is None:
            return self._open_to_all(
                order, made if is_shown else None, is_there=isinstance(image, ShownImage)
            )
        if image.readers is None:
            raise NodeTrouble(f"node {self._node} does not say who may read an image", is_away=False)
        known = {0, image.owner_uid, *image.readers.uids, *joined}
        missing = tuple(sorted(set(order.readers.uids) - known))
        if not missing:
            return OrderResult(order=order)
        if made is not None and is_shown:
            # Each of these users has shown a right to it on the head, when it was looked up.
            allowed = AddRequest(
                uri=order.uri,
                digest=order.digest,
                size_bytes=order.size_bytes,
                sources=(made,),
                readers=Readers(uids=missing),
                vouched=True,
            )
            self._asking.send("add", allowed)
            return OrderResult(order=order)
        for uid in missing:
            wanted = AddRequest(
                uri=order.uri, digest=order.digest, size_bytes=order.size_bytes, uid=uid, private=True
            )
            self._asking.send("add", wanted)
        return OrderResult(order=order)

    def _open_to_all(self, order: Fetch | Pin, made: str | None, *, is_there: bool) -> OrderResult:
        """A private image that was begun for others, and is everybody's where it came from: else whoever
        reserved it first could keep it from all others. The daemon asks there itself, without any rights;
        what the head has `made` it has looked up in nobody's name."""
        wanted = AddRequest(
            uri=self._catalogue.source_of(order.uri),
            digest=order.digest,
            size_bytes=order.size_bytes,
            sources=None if made is None else (made,),
            private=None if made is None else False,
            everybody=made is None,
            dry_run=not is_there,
        )
        try:
            self._asking.send("add", wanted)
        except (BadRequest, NotAllowed) as error:
            return OrderResult(
                order=order,
                code="not-allowed",
                words=f"the image is on {self._node} for its owner's use only: write `private: true`, "
                f"or ask its owner to make it public ({error})",
            )
        return OrderResult(order=order)

    def _shown(self, order: Fetch | Pin) -> ShownImage:
        return self._asking.order("show", NameRequest(order.digest), ShownImage)
