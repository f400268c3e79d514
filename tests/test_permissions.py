# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The executor needs each permission that docs/rbac.yaml grants, and says so where one is missing.

That it needs no other shows every deployment of the system tests: on a real control plane, no scheduler and
no API server may do more.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testbed.permissions import Account, Permission, permissions
from testbed.records import RECOVERED, UNTOUCHED, Run
from testbed.testbed import Testbed
from testbed.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.usefixtures("first_scheduler")]


POD = "POD"
"""In the place of a pod's name."""

# What becomes of a run while the permission is missing. Each waits until that is to be seen.


def create(testbed: Testbed, refused: str) -> Run:
    """A pod is asked for again and again."""
    run = testbed.trigger("create")
    said(testbed, "[Try 2 of 14] Pod default/create-work", refused)
    return run


def delete(testbed: Testbed, refused: str) -> Run:
    """A pod that has ended stays."""
    run = testbed.trigger("delete")
    run.release()
    assert run.wait_for_end("work") == UNTOUCHED
    said(testbed, "Deleting pod default/delete-work", refused)
    assert testbed.cluster.pods(run.run_id)
    return run


def get(testbed: Testbed, refused: str) -> Run:
    """A pod that somebody has deleted is not replaced: another scheduler may have taken it over."""
    run = testbed.trigger("get")
    said(testbed, "Confirming pod default/get-work", refused)
    assert run.outcome("work").launch_failures == 0
    return run


def list_(testbed: Testbed, refused: str) -> Run:
    """The executor does not see what becomes of pods, once it has to list them anew."""
    run = testbed.trigger("list")
    run.wait_for_code("work")
    testbed.proxy.expire_watch()
    testbed.proxy.cut_watches()
    said(testbed, "Watching pods in default", refused)
    return run


def watch(testbed: Testbed, refused: str) -> Run:
    """The same, once its watch is broken off."""
    run = testbed.trigger("watch")
    run.wait_for_code("work")
    testbed.proxy.cut_watches()
    said(testbed, "Watching pods in default", refused)
    return run


def patch(testbed: Testbed, refused: str) -> Run:
    """A failed pod that is kept is not taken out of the executor's sight."""
    run = testbed.trigger("patch")
    said(testbed, "Labelling pod default/patch-work", refused)
    assert not all(testbed.cluster.is_done(name) for name in run.pods("work")[:1])
    return run


def log_list(testbed: Testbed, refused: str) -> Run:
    """The page of a task that runs has no log."""
    run = testbed.trigger("log_list")
    run.wait_for_code("work")
    shown(testbed, run, "Reading from k8s pod logs failed", refused)
    return run


def log_get(testbed: Testbed, refused: str) -> Run:
    """The same: its pod is found, and its log cannot be read."""
    run = testbed.trigger("log_get")
    run.wait_for_code("work")
    shown(testbed, run, "Reading the log of pod default/log-get-work", refused)
    return run


WITHOUT: dict[Permission, Callable[[Testbed, str], Run]] = {
    Permission(Account.SCHEDULER, "pods", "create"): create,
    Permission(Account.SCHEDULER, "pods", "delete"): delete,
    Permission(Account.SCHEDULER, "pods", "get"): get,
    Permission(Account.SCHEDULER, "pods", "list"): list_,
    Permission(Account.SCHEDULER, "pods", "patch"): patch,
    Permission(Account.SCHEDULER, "pods", "watch"): watch,
    Permission(Account.API_SERVER, "pods", "list"): log_list,
    Permission(Account.API_SERVER, "pods/log", "get"): log_get,
}


@pytest.mark.control_plane
@pytest.mark.parametrize(
    "taken", permissions(), ids=lambda taken: f"{taken.account}-{taken.resource}-{taken.verb}"
)
def test_a_permission_that_is_missing_is_named_and_nothing_is_lost(
    testbed: Testbed, taken: Permission
) -> None:
    assert testbed.permissions is not None
    user = f"system:serviceaccount:default:{taken.account}"
    refused = f'User "{user}" cannot {taken.verb} resource "{taken.resource}"'
    with testbed.permissions.without(taken):
        run = WITHOUT[taken](testbed, refused)
    expected = RECOVERED if WITHOUT[taken] in (get, patch) else UNTOUCHED
    assert testbed.end(run) == {"work": expected}


@pytest.mark.control_plane
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("kubernetes-resilience", "explain", POD), 3),  # it has not failed
        (("kubernetes", "cleanup-pods", "--namespace", "default"), 0),
    ],
    ids=["explain", "cleanup-pods"],
)
def test_commands_need_no_more_than_the_scheduler(
    testbed: Testbed, command: tuple[str, ...], code: int
) -> None:
    run = testbed.trigger("commands", command[1])
    run.wait_for_code("work")
    (pod,) = run.pods("work")
    done = testbed.deployment.run(*(pod if word == POD else word for word in command))
    assert done.returncode == code, done.stderr
    assert "403" not in done.stdout + done.stderr
    assert run.outcome("work").state == "running"


def said(testbed: Testbed, *words: str) -> None:
    """Wait until a line of the scheduler's log has all these words."""

    def lines(*wanted: str) -> list[str]:
        log = testbed.schedulers.log()
        return [line for line in log.splitlines() if all(word in line for word in wanted)]

    wait_for(f"the scheduler says {words}", lambda: lines(*words), show=lambda: lines(words[0]))


def shown(testbed: Testbed, run: Run, *words: str) -> None:
    """Check that the page of a task's log has all these words."""
    events = testbed.api.task_log(run.dag_id, run.run_id, "work")
    assert [event for event in events if all(word in event for word in words)], events
