# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from cluster_lab.apiserver.deletion import DeleteOptions
from cluster_lab.apiserver.podgc import OUT_OF_SERVICE, PodGc, PodGcSettings
from cluster_lab.apiserver.registry import Registry
from cluster_lab.apiserver.resources import NAMESPACES, NODES, PODS
from cluster_lab.apiserver.store import Store

NOT_READY = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


class World:
    def __init__(self) -> None:
        self.registry = Registry(Store())
        self.now = 0.0
        self.gc = PodGc(self.registry, PodGcSettings(quarantine=40), lambda: self.now)
        self.registry.create(NAMESPACES, "", {"metadata": {"name": "n"}})

    def add_node(self, **node: Any) -> None:
        self.registry.create(NODES, "", {"metadata": {"name": "node"}} | node)

    def add_pod(self) -> None:
        spec = {"containers": [{"name": "base", "image": "i"}]}
        self.registry.create(PODS, "n", {"metadata": {"name": "pod"}, "spec": spec})
        self.registry.bind("n", "pod", {"target": {"name": "node"}})

    def pods(self) -> list[str]:
        return [record.key[1] for record in self.registry.store.records(PODS)]


@pytest.fixture
def world() -> World:
    return World()


def test_a_node_has_to_be_missing_for_the_quarantine(world: World) -> None:
    world.add_pod()
    world.gc.collect()
    world.now = 39
    world.gc.collect()
    assert world.pods() == ["pod"]

    world.now = 40
    world.gc.collect()
    assert world.pods() == []


def test_a_node_that_comes_back_starts_anew(world: World) -> None:
    world.add_pod()
    world.gc.collect()
    world.now = 39
    world.add_node(status=READY)
    world.gc.collect()
    world.registry.delete(NODES, "", "node", DeleteOptions())
    world.now = 50
    world.gc.collect()

    assert world.pods() == ["pod"]


@pytest.mark.parametrize(
    ("status", "taints", "deleted", "removed"),
    [
        (NOT_READY, [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}], True, True),
        (READY, [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}], True, False),
        (NOT_READY, [], True, False),
        (NOT_READY, [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}], False, False),
    ],
)
def test_only_terminating_pods_of_a_dead_node_out_of_service_go(
    world: World, status: dict[str, Any], taints: list[dict[str, str]], deleted: bool, removed: bool
) -> None:
    world.add_node(status=status, spec={"taints": taints})
    world.add_pod()
    if deleted:
        world.registry.delete(PODS, "n", "pod", DeleteOptions())

    world.gc.collect()

    assert world.pods() == ([] if removed else ["pod"])
