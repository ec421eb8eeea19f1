"""What a gang does with its lives in one loop against the same for one life after the other."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.images.gang_lives import extend_all, leave_all, revive_all
from outrider.core.images.pools import Life, Lingering, Pools
from outrider.core.model import Image, Node, Resources

NODES = 70
IMAGES = tuple(Image(uri=f"{number}.img", size_bytes=100 * number) for number in (1, 2, 3))


def rank(entry: Lingering, now_s: int) -> tuple[int, ...]:
    return (entry.last_use_s,)


class Gangs:
    """Gangs that come and go, with pools that are told of one life at a time, or of all."""

    def __init__(self, *, is_together: bool) -> None:
        nodes = [
            Node(name=f"n{number}", capacity=Resources.of(cpus=1), pool_bytes=700) for number in range(NODES)
        ]
        self.pools = Pools(nodes, keep_bytes=400, rank=rank)
        self.lives: dict[str, list[tuple[int, Life]]] = {}
        self._is_together = is_together

    def come(self, name: str, image: Image, nodes: list[int], now_s: int, until_s: int) -> None:
        pools = self.pools
        lingering = [node for node in nodes if image.key in pools.pools[node].lingering]
        others = [node for node in nodes if node not in lingering]
        shared = [(node, pools.pools[node].life_at(image.key, now_s)) for node in others]
        lives = [(node, life) for node, life in shared if life is not None]
        if self._is_together:
            lives += revive_all(pools, lingering, image, now_s, until_s)
        else:
            for node in lingering:
                revived = pools.revive(node, image.key, image, now_s, until_s)
                assert revived is not None
                lives.append((node, revived))
        for node in [node for node, life in shared if life is None]:
            brought = Life(image, now_s, now_s + 5, until_s, transfer=node if node % 3 == 0 else None)
            pools.add(node, brought)
            lives.append((node, brought))
        if self._is_together:
            extend_all(pools, lives, name, until_s)
        else:
            for node, life in lives:
                pools.extend(node, life, name, until_s)
        self.lives[name] = lives

    def go(self, name: str, now_s: int) -> None:
        lives = self.lives.pop(name)
        if self._is_together:
            leave_all(self.pools, lives, name, now_s)
            return
        for node, life in lives:
            self.pools.leave(node, life, name, now_s)

    def state(self) -> object:
        pools = self.pools
        lives = [
            (node, key, life.number, life.start_s, life.expires_s, life.users, life.transfer)
            for node, pool in enumerate(pools.pools)
            for key, each in pool.lives.items()
            for life in each
        ]
        each_pool = [(pool.lingering, pool.uses, pool.promised_bytes) for pool in pools.pools]
        where = [pools.mask_with(image.key) for image in IMAGES]
        return lives, each_pool, where, pools.stays, pools.changed


@pytest.mark.parametrize("seed", range(20))
def test_gangs_leave_pools_as_their_lives_one_by_one_do(seed: int) -> None:
    chance = Random(seed)
    together, one_by_one = Gangs(is_together=True), Gangs(is_together=False)
    running: list[str] = []

    for number in range(60):
        now_s = number * 10
        name, image = f"gang {number}", chance.choice(IMAGES)
        nodes = chance.sample(range(NODES), chance.randrange(1, NODES))
        until_s = now_s + chance.randrange(10, 200)
        gone = chance.sample(running, min(len(running), chance.randrange(3)))
        running = [each for each in running if each not in gone] + [name]
        for gangs in (together, one_by_one):
            gangs.pools.settle(now_s)
            for each in gone:
                gangs.go(each, now_s)
            gangs.come(name, image, nodes, now_s, until_s)

        assert together.state() == one_by_one.state()

    assert together.pools.stays
