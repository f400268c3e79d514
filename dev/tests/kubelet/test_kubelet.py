# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The life of pods and nodes to which nothing happens."""

from __future__ import annotations

import os
from datetime import datetime

import psutil
import pytest

from cluster_lab.journal import JournalEvent

SLEEP = "import time; print('up'); time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(600)"


def worker_pid(cluster, name):
    return int(cluster.log(name).split("pid=")[1].split()[0])


async def test_a_worker_that_succeeds(start_cluster):
    async with start_cluster() as cluster:
        name = await cluster.create("load")
        await cluster.until_seen(name, "Succeeded base=Completed/0")
        assert cluster.history(name) == [
            "Pending base=ContainerCreating",
            "Running base=running",
            "Succeeded base=Completed/0",
        ]
        pod = cluster.latest(name)
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert ended["containerID"]
        assert datetime.fromisoformat(ended["startedAt"]) <= datetime.fromisoformat(ended["finishedAt"])
        assert cluster.conditions(name) == {
            "PodScheduled": ("True", None),
            "Initialized": ("True", None),
            "ContainersReady": ("False", "PodCompleted"),
            "Ready": ("False", "PodCompleted"),
        }
        entries = cluster.journal(name)
        assert [entry.event for entry in entries] == ["bound", "started", "exited"]
        assert entries[-1].exit_code == 0
        assert (entries[0].dag_id, entries[0].task_id, entries[0].run_id) == ("etl", "load", "r1")
        assert entries[0].uid == pod["metadata"]["uid"]
        assert entries[0].node == pod["spec"]["nodeName"]


async def test_a_program_that_does_not_exist_is_a_start_error(start_cluster):
    async with start_cluster() as cluster:
        name = await cluster.create("load", base={"command": ["no-such-program"]})
        await cluster.until_seen(name, "Failed base=StartError/128")
        assert cluster.journal_events(name) == ["bound"]


async def test_the_environment_of_a_worker(start_cluster):
    script = "import os; print(sorted(f'{k}={v}' for k, v in os.environ.items() if k in {keys!r}))"
    keys = ("HOSTNAME", "ONE", "TWO", "THREE", "SECRET")
    from_field = {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    env = [{"name": "TWO", "value": "pod"}, {"name": "THREE", "value": ""}, from_field]
    os.environ["SECRET"] = "of the lab"
    try:
        async with start_cluster(env={"ONE": "lab", "TWO": "lab"}) as cluster:
            name = await cluster.create("load", script.replace("{keys!r}", repr(keys)), base={"env": env})
            await cluster.until_seen(name, "Succeeded base=Completed/0")
            assert str(sorted([f"HOSTNAME={name}", "ONE=lab", "TWO=pod", "THREE="])) in cluster.log(name)
    finally:
        del os.environ["SECRET"]


async def test_init_containers_and_sidecars_are_simulated(start_cluster):
    init = [{"name": "git-sync", "image": "g"}, {"name": "proxy", "image": "p", "restartPolicy": "Always"}]
    async with start_cluster() as cluster:
        version = await cluster.client.request("GET", "/version")
        if int(version["minor"].rstrip("+")) < 28:
            pytest.skip("a container that runs beside the others came with Kubernetes 1.28")
        name = await cluster.create("load", initContainers=init, sidecars=[{"name": "aux", "image": "a"}])
        await cluster.until_seen(
            name, "Succeeded git-sync=Completed/0 proxy=Completed/0 aux=Completed/0 base=Completed/0"
        )
        assert cluster.history(name)[:3] == [
            "Pending git-sync=PodInitializing proxy=PodInitializing aux=PodInitializing base=PodInitializing",
            "Pending git-sync=Completed/0 proxy=running aux=PodInitializing base=PodInitializing",
            "Running git-sync=Completed/0 proxy=running aux=running base=running",
        ]


async def test_deletion_ends_a_worker_with_sigterm(start_cluster):
    async with start_cluster() as cluster:
        name = await cluster.create("load", SLEEP)
        await cluster.until_logged(name, "up")
        await cluster.delete(name)
        await cluster.until_seen(name, "gone: Failed base=Error/143 deleting")
        assert cluster.history(name)[-3:] == [
            "Running base=running deleting",
            "Failed base=Error/143 deleting",
            "gone: Failed base=Error/143 deleting",
        ]
        await cluster.until_journaled(name, JournalEvent.DELETED)
        assert cluster.journal_events(name) == ["bound", "started", "exited", "deleted"]
        assert cluster.journal(name)[2].exit_code == 143


async def test_a_worker_that_ignores_sigterm_is_killed_after_the_grace_period(start_cluster):
    async with start_cluster() as cluster:
        name = await cluster.create("load", STUBBORN)
        await cluster.until_logged(name, "up")
        await cluster.delete(name, grace_seconds=1)
        await cluster.until_seen(name, "gone: Failed base=Error/137 deleting")


# Like Airflow's task process: in a group of its own, and without an environment that can be read.
@pytest.mark.parametrize("escape", ["env={}, process_group=0", "start_new_session=True"])
async def test_a_force_deleted_worker_is_killed_with_all_its_children(start_cluster, escape):
    script = (
        "import os, subprocess, sys, time;"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], {escape});"
        "print(f'pid={os.getpid()} child={child.pid} up'); time.sleep(600)"
    )
    async with start_cluster() as cluster:
        name = await cluster.create("load", script)
        await cluster.until_logged(name, "up")
        child = int(cluster.log(name).split("child=")[1].split()[0])
        await cluster.delete(name, grace_seconds=0)
        await cluster.until_journaled(name, JournalEvent.EXITED)
        # The API server says that the pod is gone before or after that.
        (exited,) = [entry for entry in cluster.journal(name) if entry.event is JournalEvent.EXITED]
        assert exited.exit_code in (137, 143)
        assert not psutil.pid_exists(worker_pid(cluster, name))
        assert not _is_alive(child)


def _is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_no_process_outlives_the_lab(start_cluster):
    async with start_cluster() as cluster:
        name = await cluster.create("load", f"import os; print(f'pid={{os.getpid()}}'); {SLEEP}")
        await cluster.until_logged(name, "up")
        pid = worker_pid(cluster, name)
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


async def test_the_log_of_a_worker_is_served_through_the_api_server(start_cluster):
    async with start_cluster() as cluster:
        name = await cluster.create("load", "print('one'); print('two')")
        await cluster.until_seen(name, "Succeeded base=Completed/0")
        path = f"/api/v1/namespaces/default/pods/{name}/log"
        log = await cluster.client.send("GET", path, query={"tailLines": 1, "container": "base"})
        assert log == b"two\n"


async def test_a_cut_watch_is_repaired_by_the_list_that_follows(start_cluster, proxy):
    async with start_cluster(embedded=False) as cluster:
        running, doomed = await cluster.create("load", SLEEP), await cluster.create("doomed", SLEEP)
        await cluster.until_logged(running, "up")
        await cluster.until_logged(doomed, "up")
        proxy.cut_watches(lambda info: "spec.nodeName" in info.query.get("fieldSelector", ""))
        await cluster.delete(doomed, grace_seconds=0)
        new = await cluster.create("new")

        await cluster.until_seen(new, "Succeeded base=Completed/0")
        await cluster.until_journaled(doomed, JournalEvent.EXITED)
        assert cluster.journal_events(running) == ["bound", "started"]
        assert cluster.history(running)[-1] == "Running base=running"


async def test_a_refused_report_is_repeated(start_cluster, proxy):
    async with start_cluster(embedded=False) as cluster:
        proxy.faults.fail(503, times=3, when=lambda info: info.subresource == "status")
        name = await cluster.create("load")
        await cluster.until_seen(name, "Succeeded base=Completed/0")


async def test_a_container_that_an_earlier_lab_ran_is_lost(start_cluster, proxy):
    async with start_cluster(embedded=False) as cluster:
        running, done = await cluster.create("load", SLEEP), await cluster.create("done")
        await cluster.until_seen(running, "Running base=running")
        await cluster.until_seen(done, "Succeeded base=Completed/0")
    async with start_cluster(embedded=False) as cluster:
        await cluster.until_seen(running, "Failed base=ContainerStatusUnknown/137")
        assert cluster.journal_events(done) == ["bound", "started", "exited"]
