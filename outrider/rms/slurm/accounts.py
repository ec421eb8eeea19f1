"""Users as this machine knows them."""

from __future__ import annotations

import os
import pwd

from outrider.rms.base import Refused
from outrider.rms.slurm.commands import Account


def account_of(user: str, uid: int) -> Account:
    """The account in whose name a job is handed over. Raises Refused."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError as error:
        raise Refused(
            f"this machine knows no user {uid} ({user}), so nothing can be submitted for it"
        ) from error
    if entry.pw_name != user:
        raise Refused(f"user {uid} is {entry.pw_name} here, not {user}")
    return Account(
        user=user,
        uid=uid,
        gid=entry.pw_gid,
        groups=tuple(os.getgrouplist(user, entry.pw_gid)),
        home=entry.pw_dir,
    )
