# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""From the official executor to ours and back, under load: what docs/migrate.md promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import distribution, version
from pathlib import Path
from signal import SIGTERM
from zipfile import ZipFile

import pytest

from breeze.distributions import OFFICIAL as OFFICIAL_PROVIDER
from breeze.distributions import fetch_official_wheel
from testbed.records import RECOVERED, RUN_AGAIN, UNTOUCHED, Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.newest_version, pytest.mark.long]

OFFICIAL = {"AIRFLOW__CORE__EXECUTOR": "KubernetesExecutor"}
"""The configuration of a scheduler before the upgrade, and after the rollback."""

STARTED = "Start Kubernetes executor (kubernetes_resilience)"
"""What the log of a scheduler has if our executor runs in it."""

Upgrade = Callable[[Testbed, Path], Mapping[str, str]]
"""Makes the environment variables of a scheduler after the upgrade, in a folder that is empty."""

DEPLOYMENT = {
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": "1",
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_DELAY": "0",
}

ROLLED_OUT = tuple(f"task_{number}" for number in range(4))

RESUMED = Outcome(state="success", pods=2, begun=2, ended=2, launch_failures=0)


def configuration(testbed: Testbed, folder: Path) -> Mapping[str, str]:
    """Upgrade by the configuration line, which the deployment has."""
    return {}


def wheel(testbed: Testbed, folder: Path) -> Mapping[str, str]:
    """Upgrade by the in-place wheel, which goes before the official one; the configuration stays."""
    official = fetch_official_wheel(version(OFFICIAL_PROVIDER))
    assert official is not None
    words = ("build-provider-wheel", "--from", str(official), "--output", str(folder))
    testbed.deployment.run_well("kubernetes-resilience", *words)
    installed = folder / "installed"
    with ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extractall(installed)
    # Airflow looks for its providers beside itself first, wherever else they are: it has to be there as well.
    airflow = Path(str(distribution("apache-airflow-core").locate_file("airflow")))
    for entry in airflow.iterdir():
        if entry.name != "providers":
            (installed / "airflow" / entry.name).symlink_to(entry)
    return {**OFFICIAL, "PYTHONPATH": str(installed)}


@pytest.mark.parametrize("upgrade", [configuration, wheel])
def test_tasks_outlive_the_upgrade_and_the_rollback(
    testbed: Testbed, tmp_path: Path, upgrade: Upgrade
) -> None:
    way = upgrade.__name__
    upgraded = upgrade(testbed, tmp_path)
    before = testbed.schedulers.replace(SIGTERM, OFFICIAL)
    run = testbed.trigger(f"switched_by_{way}")
    queued = [run.wait_for_pods(f"queued_{number}", 1)[0] for number in range(3)]
    lost = run.wait_for_pods("lost", 1)[0]
    is_on_its_way(run)
    testbed.decide(queued[0])
    run.wait_for_code("queued_0", "evicted")

    ours = testbed.schedulers.replace(SIGTERM, upgraded)
    testbed.cluster.wait_for_owner((*queued, lost, *run.pods("running"), *run.pods("evicted")), ours.job_id)
    assert [STARTED in scheduler.log() for scheduler in (before, ours)] == [False, True]
    testbed.cluster.delete(lost)
    testbed.cluster.evict(run.pods("evicted")[0])
    testbed.decide(run.wait_for_pods("lost", 2)[1])
    testbed.decide(queued[1])
    run.wait_for_code("lost", "queued_1")
    run.wait_for_times(2, "evicted")
    back = testbed.trigger(f"switched_back_by_{way}")
    queued_by_ours = back.wait_for_pods("queued", 1)[0]
    back.wait_for_code("relaunched")
    is_on_its_way(back)
    # The last: its next pod comes after half a minute.
    held_off = testbed.trigger(f"held_off_by_{way}")
    held_off.wait_for_ledger("work", 1)

    official = testbed.schedulers.replace(SIGTERM, OFFICIAL)
    pods = (*queued, queued_by_ours, *run.pods("running"), *back.pods("running"), back.pods("relaunched")[1])
    testbed.cluster.wait_for_owner(pods, official.job_id)
    assert STARTED not in official.log()
    testbed.decide(queued[2])
    testbed.decide(queued_by_ours)
    run.wait_for_code("queued_2")
    back.wait_for_code("queued")
    held_off.wait_for_code("work")
    assert testbed.end(run) == {
        **{f"queued_{number}": UNTOUCHED for number in range(3)},
        "lost": RECOVERED,
        "running": UNTOUCHED,
        "evicted": RUN_AGAIN,
        "deferred": RESUMED,
    }
    assert testbed.end(back) == {
        "queued": UNTOUCHED,
        "running": UNTOUCHED,
        "relaunched": RECOVERED,
        "deferred": RESUMED,
    }
    # Between two launches there is no pod to adopt: the official executor has Airflow begin another try.
    another_try = Outcome(state="success", try_number=2, pods=2, launch_failures=1)
    assert testbed.end(held_off) == {"work": another_try}


def test_in_a_rollout_both_schedulers_live_and_leave_each_others_tasks_alone(testbed: Testbed) -> None:
    official = testbed.schedulers.replace(SIGTERM, OFFICIAL)
    before = testbed.cluster.version()
    run = testbed.trigger("rolled_out")
    run.wait_for_code(*ROLLED_OUT)
    lost = run.wait_for_pods("lost", 1)[0]
    ours = testbed.schedulers.start()
    during = testbed.trigger("rolled_out_meanwhile")
    during.wait_for_code(*ROLLED_OUT)
    # Both have looked for orphans more than once.
    testbed.schedulers.wait_for_turns(6)
    owners = testbed.cluster.owners_since(before)
    assert {pod: len(jobs) for pod, jobs in owners.items()} == dict.fromkeys(owners, 1)
    assert {testbed.cluster.owner(pod) for pod in (lost, *run.pods("task_0"))} == {official.job_id}

    official.end(SIGTERM)
    pods = [pod for each in (run, during) for task in ROLLED_OUT for pod in each.pods(task)]
    testbed.cluster.wait_for_owner((lost, *pods), ours.job_id)
    testbed.cluster.delete(lost)
    testbed.decide(run.wait_for_pods("lost", 2)[1])
    run.wait_for_code("lost")
    assert testbed.end(run) == {**dict.fromkeys(ROLLED_OUT, UNTOUCHED), "lost": RECOVERED}
    assert testbed.end(during) == dict.fromkeys(ROLLED_OUT, UNTOUCHED)


def is_on_its_way(run: Run) -> None:
    """Wait until a task runs and another one is deferred."""
    run.wait_for_code("running")
    wait_for("a task is deferred", lambda: run.outcome("deferred").state == "deferred")
