"""Keys that wait to be dealt with, one user's in turn with another's: who has thousands delays nobody
who has one."""

from __future__ import annotations

from collections import OrderedDict


class Rota:
    """Each key is in it once, at the place where it came in among its user's."""

    def __init__(self) -> None:
        self._by_user: OrderedDict[int, dict[str, None]] = OrderedDict()
        self._users: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._users)

    def add(self, key: str, user: int) -> None:
        if key not in self._users:
            self._users[key] = user
            self._by_user.setdefault(user, {})[key] = None

    def discard(self, key: str) -> None:
        user = self._users.pop(key, None)
        if user is None:
            return
        own = self._by_user[user]
        del own[key]
        if not own:
            del self._by_user[user]

    def take(self) -> str | None:
        """The first key of the user whose turn it is; None if there is none left."""
        if not self._by_user:
            return None
        user, own = next(iter(self._by_user.items()))
        key = next(iter(own))
        self._by_user.move_to_end(user)
        self.discard(key)
        return key
