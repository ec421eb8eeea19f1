"""What the scripted front says of the whole site."""

from __future__ import annotations

from outrider.service.answers.site import (
    Overview,
    ReservationColumns,
    ShareList,
    ShareView,
    Status,
    TakenColumns,
)

NOW_S = 1_800_000_000
STATUS = Status(
    version="1",
    site="site",
    batch_system="twin",
    now_s=NOW_S,
    started_s=NOW_S - 10,
    is_promising=True,
    troubles=(),
    last_look_s=NOW_S,
    nodes=2,
    nodes_up=2,
    nodes_away=0,
    reservations={"accepted": 1},
    next_start_s=None,
    transfers_waiting=0,
    transfers_running=0,
    link_rate_bytes_per_s=1,
    link_busy_until_s=None,
    effects_waiting=0,
    decisions={"accepted": 1},
)
SHARES = ShareList(
    shares=(
        ShareView(
            thing="transfers",
            unit="places",
            user="mia",
            where="n1",
            held=6,
            most=8,
            refused=2,
            nodes=3,
            held_in_all=9,
            seen_s=NOW_S,
        ),
    ),
    is_complete=True,
    is_of_all=True,
    missing=(),
    nodes=4,
    oldest_s=NOW_S - 60,
)
OVERVIEW = Overview(
    nodes=("n1", "n2", "n3"),
    unavailable=(2, 1),
    reservations=ReservationColumns(
        names=("render-17",),
        users=("mia",),
        states=("accepted",),
        starts_s=(NOW_S + 3600,),
        ends_s=(NOW_S + 7200,),
        ready_s=(None,),
        nodes=((0, 2),),
    ),
    taken=TakenColumns(kinds=("job",), starts_s=(0,), ends_s=(NOW_S + 600,), nodes=((1, 1),)),
    is_complete=True,
)
