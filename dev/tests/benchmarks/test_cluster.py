# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.cluster import Cluster, count_requests, open_cluster
from benchmarks.pods import pod_name, worker_pod, worker_status
from cluster_lab.apiserver.testing import running_server
from testbed.waiting import wait_for

METRICS = """\
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 7
apiserver_request_total{resource="pods",subresource="status",verb="PATCH",version="v1"} 1.2e+01
apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT",version="v1"} 99
apiserver_request_total{code="200",resource="leases",subresource="pods",verb="PUT",version="v1"} 99
apiserver_request_duration_seconds_sum{resource="pods",verb="POST"} 3
"""
POD_BYTES = 2_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_server(token="lab-token", run_controllers=False) as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        with open_cluster(tmp_path / "kubeconfig", tmp_path / "relayed") as opened:
            yield opened


def test_what_is_done_to_pods_is_seen(cluster: Cluster) -> None:
    status = worker_status()
    status.end_worker(128, "StartError")
    with cluster.observed() as observer:
        uids = cluster.create(worker_pod(index, f"ti-{index}", "1") for index in range(3))
        cluster.report([pod_name(0)], status.patch())
        wait_for("a pod has failed", lambda: len(observer.alive()) == 2, show=observer.alive)
        failed = observer.pods[uids[0]]
        assert failed.failed
        assert failed.created <= failed.failed
        assert [pod.map_index for pod in observer.alive()] == [1, 2]
        pods_per_second, bytes_per_pod = cluster.raw_rate()
        assert pods_per_second > 0
        assert bytes_per_pod > POD_BYTES
        cluster.clear()
        wait_for("the pods are gone", lambda: observer.gone() == 3, show=observer.gone)
        again = cluster.create(worker_pod(index, f"ti-{index}", "1") for index in range(3))
        wait_for("the pods have come again", lambda: len(observer.pods) == 6)
        assert (failed, observer.pods[again[0]]) in observer.replaced()


def test_the_relay_counts_what_it_passes_on(cluster: Cluster, tmp_path: Path) -> None:
    with open_cluster(tmp_path / "relayed", tmp_path / "relayed-again") as executor:
        executor.create([worker_pod(0, "ti", "1")])
    assert cluster.relayed > 2 * POD_BYTES


def test_only_requests_about_pods_are_counted() -> None:
    assert count_requests(METRICS) == 19


def test_pods_cannot_be_compressed_into_nothing() -> None:
    pods = [json.dumps(worker_pod(index, f"ti-{index}", "3")).encode() for index in range(50)]
    assert len(zlib.compress(b"".join(pods))) > 50 * 450
