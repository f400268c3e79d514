# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.cluster import Cluster, open_cluster
from benchmarks.metrics import parse_requests, total_since
from benchmarks.pods import never_started, worker_pod
from benchmarks.relay import open_relay
from cluster_lab.apiserver.testing import running_server
from cluster_lab.ports import LOOPBACK
from testbed.waiting import wait_for

METRICS = """\
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 7
apiserver_request_total{code="409",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 1
apiserver_request_total{code="200",resource="pods",subresource="status",verb="PATCH",version="v1"} 1.2e+01
apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT",version="v1"} 99
apiserver_request_duration_seconds_sum{resource="pods",verb="POST"} 3
"""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with running_server(token="lab-token", run_controllers=False) as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        yield tmp_path / "kubeconfig"


@pytest.fixture
def cluster(kubeconfig: Path) -> Iterator[Cluster]:
    with open_cluster(kubeconfig, has_metrics=False) as cluster:
        yield cluster


def test_pods_are_made_reported_on_and_removed_and_all_of_that_is_seen(cluster: Cluster) -> None:
    with cluster.observed() as observer:
        pods = cluster.create(worker_pod(index, f"ti-{index}", 1) for index in range(3))
        assert {pod.uid for pod in pods} == {pod.uid for pod in cluster.pods()}
        assert {pod.owner for pod in pods} == {"1"}
        cluster.report([pods[0].name], never_started())
        cluster.delete([pods[1].name, "not-there"])
        wait_for(
            "one pod is gone and one is alive",
            lambda: (observer.gone(), len(observer.alive())) == (1, 1),
            show=lambda: (observer.gone(), observer.alive()),
        )
        (failed,) = observer.of_task(0)
        assert failed.uid == pods[0].uid
        assert failed.failed is not None
        assert failed.created <= failed.failed
        assert [pod.map_index for pod in observer.alive()] == [2]
    cluster.clear()
    assert cluster.pods() == []


def test_the_raw_rate_is_of_all_pods(cluster: Cluster) -> None:
    cluster.create(worker_pod(index, f"ti-{index}", 1) for index in range(2))
    raw = cluster.raw_rate()
    assert raw.pods_per_second > 0
    assert 2_000 < raw.bytes_per_pod < 10_000


def test_requests_are_counted_by_verb_and_subresource(cluster: Cluster) -> None:
    (pod,) = cluster.create([worker_pod(0, "ti", 1)])
    cluster.report([pod.name], never_started())
    cluster.clear()
    assert cluster.api.counts == {("POST", ""): 1, ("PATCH", "status"): 1, ("LIST", ""): 1, ("DELETE", ""): 1}
    assert cluster.requests() == {}


def test_metrics_of_requests_about_pods() -> None:
    found = parse_requests(METRICS)
    assert found == {("POST", ""): 8, ("PATCH", "status"): 12}
    assert total_since({("POST", ""): 6}, found) == 14


def test_a_relay_counts_what_it_passes_on(kubeconfig: Path, tmp_path: Path) -> None:
    with open_relay(kubeconfig) as relay:
        relay.write_kubeconfig(tmp_path / "through")
        with open_cluster(tmp_path / "through", has_metrics=False) as cluster:
            assert cluster.pods() == []
            assert relay.connections == 1
            assert relay.sent > 100
            before = relay.received
            cluster.create([worker_pod(0, "ti", 1)])
            assert relay.received - before > 2_000
            assert relay.bytes == relay.sent + relay.received


def test_a_relay_cuts_connections(kubeconfig: Path) -> None:
    with open_relay(kubeconfig) as relay, socket.create_connection((LOOPBACK, relay.port)) as client:
        client.sendall(b"GET /version HTTP/1.1\r\nHost: here\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        relay.cut()
        client.settimeout(300)
        assert has_ended(client)


def has_ended(client: socket.socket) -> bool:
    try:
        while client.recv(1000):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        pass
    return True
