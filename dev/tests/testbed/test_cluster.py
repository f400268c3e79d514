# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cluster_lab.api_proxy import ApiProxy
from cluster_lab.apiserver import RequestInfo
from cluster_lab.apiserver.testing import running_server
from cluster_lab.conformance import Api, connect
from testbed.cluster import open_cluster
from testbed.waiting import LONGEST_WAIT


def deletes_pods(info: RequestInfo) -> bool:
    return info.method == "DELETE"


def test_a_drain_whose_answers_are_lost_is_not_about_the_pods_that_come_after_it(tmp_path: Path) -> None:
    with running_server(run_controllers=False) as server, ThreadPoolExecutor(1) as background:
        server.write_kubeconfig(tmp_path / "direct")
        with (
            ApiProxy(tmp_path / "direct") as proxy,
            connect(server.url, None) as http,
        ):
            proxy.write_kubeconfig(tmp_path / "through")
            api = Api(http, "default")
            api.create("lost", labels={"dag_id": "drained"})
            api.create("elsewhere", labels={"dag_id": "another"})
            with open_cluster(tmp_path / "through") as cluster:
                with proxy.hold(when=deletes_pods, reply=True) as held:
                    drained = background.submit(cluster.drain, "drained")
                    held.wait_for(1, LONGEST_WAIT)
                    api.create("replacement", labels={"dag_id": "drained"})
                    held.drop()
                drained.result(LONGEST_WAIT)
                assert sorted(cluster.names()) == ["elsewhere", "replacement"]
