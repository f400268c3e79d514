# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Calls the listeners that implement our hooks. No listener can stop another, or the caller."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from pluggy import PluginValidationError

from airflow_resilience.propagation import hookspecs

log = logging.getLogger(__name__)


def call(hook: str, *, in_worker: bool = False, **arguments: Any) -> None:
    """
    Call the listeners that implement a hook of ours, the last one that was registered first.

    :param hook: a name of :mod:`.hookspecs`
    :param in_worker: whether this process runs a task; other processes have listeners of their own
    """
    try:
        manager = _manager(in_worker=in_worker)
        _specify(manager, hook)
        listeners = [item.plugin for item in getattr(manager.hook, hook).get_hookimpls()]
    except Exception:
        log.exception("The listeners of %s could not be called", hook)
        return
    for listener in reversed(listeners):
        others = [item for item in listeners if item is not listener]
        try:
            manager.pm.subset_hook_caller(hook, others)(**arguments)
        except Exception:
            log.exception("The listener %s could not handle %s", manager.pm.get_name(listener), hook)


def _manager(*, in_worker: bool) -> Any:
    # Before Airflow 3.2 a worker has the same listener manager as other processes.
    if in_worker and find_spec("airflow.sdk.listener"):
        from airflow.sdk import listener as found  # noqa: PLC0415 - it is not there before

        return found.get_listener_manager()
    from airflow.listeners.listener import get_listener_manager  # noqa: PLC0415 - it loads all plugins

    return get_listener_manager()


def _specify(manager: Any, hook: str) -> None:
    """
    Add the missing specification of a hook.

    Airflow has registered all listeners by now. Airflow accepts implementations without a specification.
    """
    if getattr(getattr(manager.hook, hook, None), "spec", None) is not None:
        return
    try:
        manager.pm.add_hookspecs(SimpleNamespace(**{hook: getattr(hookspecs, hook)}))
    except PluginValidationError:
        # The specification is added all the same. The listener fails at each call.
        log.exception("A listener implements %s with arguments that it does not have", hook)
    except ValueError:
        log.debug("Another thread has specified %s meanwhile", hook)
