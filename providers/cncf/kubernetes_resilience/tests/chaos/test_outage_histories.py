# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Short histories of a registry that is away, with a limit of one relaunch."""

from __future__ import annotations

import pytest

from .outage_machine import LOOK, MAX_WAIT


def begin(by_hand):
    """Give the machine: two task instances that have failed for the registry."""
    chaos = by_hand(1, outages=True)
    chaos.begin_outage()
    return chaos


def probe(chaos, seconds):
    """Let so much time pass, and the probe that is due then fail."""
    chaos.world.pass_time(seconds)
    chaos.flush()
    chaos.try_to_start()


@pytest.mark.parametrize("crashes", [False, True])
def test_a_registry_is_away_for_several_probes(chaos, world, crashes):
    for seconds in (16, 31, 61, 121):
        probe(chaos, seconds)
        if crashes:
            world.crash(world.schedulers[0])
            chaos.flush()
            chaos.launch_all()
    assert len(world.pods) > 2 * (world.limit + 1)
    # The relaunch that each may have is still there.
    world.registry_is_away = False
    while not chaos.pods("Pending"):
        world.pass_time(10)
        chaos.flush()
    world.kill(chaos.pods("Pending")[0], "drain")
    chaos.come_to_rest()
    assert [(ti.state, ti.try_number) for ti in world.tis] == [("success", 1)] * 2


def test_a_registry_stays_away(chaos, world):
    for _ in range(6):
        probe(chaos, MAX_WAIT / 5)
    world.pass_time(LOOK)
    chaos.flush()
    assert world.held_by(*world.schedulers) == []


def test_what_is_held_is_cleared(chaos, world):
    # The first one is the probe, about which it is found out anyhow.
    chaos.clear(chaos.held()[-1])
