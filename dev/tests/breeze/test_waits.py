# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
No wait of the product lasts for as long as somebody else chooses.

Each has a limit in its call, or is named here with what ends it: an endless loop, an event or a thread, and a
statement that may meet a row which another transaction has locked.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from breeze.paths import CORE, PROVIDER

KUBERNETES = "airflow/providers/cncf/kubernetes_resilience"
TASKS, THREAD = f"{KUBERNETES}/executors/tasks", f"{KUBERNETES}/pods/thread"
LOCKED = "the caller has locked the task instances, and has waited for no lock"

ENDS = {
    "airflow_resilience/propagation/database.py _delete": LOCKED,
    f"{TASKS}/dependents.py _delete": LOCKED,
    f"{TASKS}/task_instances.py _update": LOCKED,
    f"{KUBERNETES}/executors/deletion/garbage_collection.py OrphanCollector.tick": "the queue is not empty",
    f"{KUBERNETES}/pods/api/call_budget.py Calls.once": "the pause that the API server has asked for",
    f"{KUBERNETES}/pods/api/call_budget.py Calls.until_answered": "an outage, or REFUSALS",
    f"{KUBERNETES}/pods/api/client.py PodClient._list": "the last page",
    f"{THREAD}/forks.py ForkSafeLoop.stand_still": "the fork, which waits for PAUSE_SECONDS at most",
    f"{THREAD}/informer.py Informer.run": "the life of the thread",
    f"{THREAD}/informer.py Informer._list_then_watch": "a watch that cannot be resumed",
    f"{THREAD}/launcher.py Launcher._change": "the pod is not changed any more",
    f"{THREAD}/launcher.py Launcher._delete_unless_started": "the pod has started, or stays as it is",
    f"{THREAD}/runtime.py KubernetesRuntime.start": "CONNECT_SECONDS in the thread",
    f"{THREAD}/runtime.py _stop_connected": "the future is done",
    f"{THREAD}/session.py Session.serve": "the life of the thread",
    f"{THREAD}/session.py Session._keep_running": "the life of the thread",
}
"""What ends the waits that have no limit of their own."""

BLOCKING = {"acquire", "get", "join", "result", "wait"}
LOCKING = {"with_for_update", "with_row_locks"}
CHANGING = {"delete", "update"}


def is_unlimited(node: ast.AST) -> bool:
    match node:
        case ast.While(test=ast.Constant()):
            return True
        case ast.For(iter=ast.Call(func=ast.Name("count"))):
            return True
        case ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[]) if name in BLOCKING:
            return True
        case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name), keywords=keywords) if name in LOCKING:
            return not {"skip_locked", "nowait"} & {keyword.arg for keyword in keywords}
        case ast.Call(func=ast.Name(name)):
            return name in CHANGING
    return False


def waits(tree: ast.Module) -> Iterator[str]:
    """Name the function, or the method of a class, around each wait without a limit."""
    for statement in tree.body:
        in_class = isinstance(statement, ast.ClassDef)
        for part in statement.body if isinstance(statement, ast.ClassDef) else [statement]:
            if any(map(is_unlimited, ast.walk(part))):
                names = [getattr(item, "name", "") for item in ([statement, part] if in_class else [part])]
                yield ".".join(names)


def test_waits_without_a_limit_say_what_ends_them() -> None:
    found = {
        f"{path.relative_to(source).as_posix()} {name}"
        for source in (CORE / "src", PROVIDER / "src")
        for path in source.rglob("*.py")
        for name in waits(ast.parse(path.read_text()))
    }
    assert found == set(ENDS)
