# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What Airflow may do in the cluster: the manifest of the documentation, applied to a real control plane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from cluster_lab.managed_process import inherited_environment, run_to_end, run_well
from testbed.waiting import wait_for

MANIFEST = Path(__file__).parents[3] / "docs" / "rbac.yaml"

NAMESPACE = "default"
"""That of the testbed's pods; in the manifest stands the one that most deployments have."""

TOKEN_SECONDS = 24 * 3600


class Account(StrEnum):
    """A service account of the manifest, and its role."""

    SCHEDULER = "airflow-scheduler"
    API_SERVER = "airflow-api-server"


class Permission(NamedTuple):
    """A verb of a rule in the manifest."""

    account: Account
    resource: str
    verb: str


def permissions() -> list[Permission]:
    """Return all that the manifest grants."""
    return [
        Permission(Account(role["metadata"]["name"]), resource, verb)
        for role in _manifest()
        if role["kind"] == "Role"
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


class Permissions:
    """
    The manifest, in force on a control plane.

    :param kubectl: the program
    :param kubeconfig: of somebody who may do everything
    :param home: an existing folder
    """

    def __init__(self, kubectl: Path, kubeconfig: Path, home: Path) -> None:
        self._kubectl = [str(kubectl), f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}"]
        self._home = home

    def grant(self) -> None:
        """Apply the manifest as it is."""
        self._apply(_manifest())

    def token(self, account: Account) -> str:
        """Return a token of a service account."""
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        request = json.dumps({**kind, "spec": {"expirationSeconds": TOKEN_SECONDS}})
        file = self._written("token-request.json", request)
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        answer = json.loads(self._run("create", f"--raw={path}", f"--filename={file}"))
        token: str = answer["status"]["token"]
        return token

    @contextmanager
    def without(self, taken: Permission) -> Iterator[None]:
        """Take one away for as long as the block lasts."""
        manifest = _manifest()
        for role in manifest:
            if (role["kind"], role["metadata"]["name"]) == ("Role", taken.account):
                for rule in role["rules"]:
                    if taken.resource in rule["resources"]:
                        rule["verbs"].remove(taken.verb)
                role["rules"] = [rule for rule in role["rules"] if rule["verbs"]]
        self._apply(manifest)
        try:
            self._wait_until(taken, allowed=False)
            yield
        finally:
            self.grant()
            self._wait_until(taken, allowed=True)

    def _wait_until(self, permission: Permission, *, allowed: bool) -> None:
        what = f"{permission} is {'granted' if allowed else 'taken away'}"
        wait_for(what, lambda: self._is_allowed(permission) is allowed)

    def _is_allowed(self, permission: Permission) -> bool:
        resource, _, subresource = permission.resource.partition("/")
        user = f"--as=system:serviceaccount:{NAMESPACE}:{permission.account}"
        question = ["auth", "can-i", permission.verb, resource, f"--subresource={subresource}", user]
        return run_to_end([*self._kubectl, *question], inherited_environment()).stdout.strip() == "yes"

    def _apply(self, manifest: list[dict[str, Any]]) -> None:
        file = self._written("rbac.yaml", yaml.safe_dump_all(manifest))
        self._run("apply", f"--filename={file}")

    def _written(self, name: str, text: str) -> Path:
        file = self._home / name
        file.write_text(text)
        return file

    def _run(self, *arguments: str) -> str:
        return run_well([*self._kubectl, *arguments], inherited_environment())


def _manifest() -> list[dict[str, Any]]:
    text = MANIFEST.read_text().replace("namespace: airflow\n", f"namespace: {NAMESPACE}\n")
    return list(yaml.safe_load_all(text))
