# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Changes of a retry policy to the launches that follow a failure. Data only.

.. seealso:: https://github.com/armadaproject/armada/blob/master/docs/retry_policies.md, which has ``mutate``
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class MemoryIncrease(NamedTuple):
    """More memory for the next worker."""

    factor: float
    """Above 1."""
    limit: str
    """The largest memory, as a quantity of Kubernetes (``16Gi``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """Changes for all further launches of the same try."""

    memory: MemoryIncrease | None = None
    """None for no change."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of nodes. Other labels of the pod's node selector remain."""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    """Each with the names of Kubernetes. The pod's own tolerations remain."""
    priority_class_name: str | None = None
    """None for the pod's own."""

    def __str__(self) -> str:
        """Return the changes: ``memory times 1.5, 16Gi at most; nodeSelector pool=large``."""
        changes: list[str] = []
        if self.memory:
            changes.append(f"memory times {self.memory.factor:g}, {self.memory.limit} at most")
        if self.node_selector:
            changes.append(f"nodeSelector {_pairs(self.node_selector)}")
        changes += [f"toleration {_pairs(toleration)}" for toleration in self.tolerations]
        if self.priority_class_name:
            changes.append(f"priorityClassName {self.priority_class_name}")
        return "; ".join(changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the changes as a policy file states them."""
        stated = {
            "resources": {"memory": self.memory._asdict()} if self.memory else None,
            "nodeSelector": dict(self.node_selector),
            "tolerations": [dict(toleration) for toleration in self.tolerations],
            "priorityClassName": self.priority_class_name,
        }
        return {name: value for name, value in stated.items() if value}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Mutation:
        """
        Read what :meth:`to_dict` has returned. Other fields are ignored.

        :raises ValueError: if a field cannot be used
        """
        try:
            memory = fields.get("resources", {}).get("memory")
            return cls(
                memory=MemoryIncrease(float(memory["factor"]), str(memory["limit"])) if memory else None,
                node_selector=dict(fields.get("nodeSelector", {})),
                tolerations=tuple(dict(toleration) for toleration in fields.get("tolerations", ())),
                priority_class_name=fields.get("priorityClassName"),
            )
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"no changes to a launch: {fields!r}") from error


def _pairs(mapping: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in mapping.items())
