# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The reference of the policy file, generated from its schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from inspect import cleandoc
from typing import Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from airflow_resilience.retry_policy import schema
from airflow_resilience.retry_policy.durations import format_duration
from airflow_resilience.retry_policy.fields import Duration, allowed, fields_of, model_in, type_of

EXAMPLES: Final[dict[type[BaseModel], str]] = {
    schema.PolicyFile: """
        defaultPolicy: standard
        globalMaxRetries: 10
        defaultBackoff:
          initialDelay: 10s
        policies:
          - name: standard
            retryLimit: 3
            defaultAction: Count
            rules:
              - name: disruption
                onPodConditions:
                  - type: DisruptionTarget
                action: Retry
          - name: gpu
            rules:
              - name: bad-node
                onExitCodes:
                  operator: In
                  values: [74]
                action: Retry
                avoidNode: require
        selection:
          - policy: gpu
            queues: [gpu]
        """,
    schema.PolicyFields: """
        name: standard
        retryLimit: 3
        backoff:
          initialDelay: 10s
        avoidNode: prefer
        defaultAction: Count
        rules:
          - name: registry
            onReasons: [ErrImagePull, ImagePullBackOff]
            action: Retry
        """,
    schema.RuleFields: """
        name: git-sync
        phases: [Launch]
        containerName: git-sync
        onTerminationMessage:
          pattern: "Could not resolve host"
        action: Retry
        retryLimit: 5
        """,
    schema.MutateFields: """
        after: 2
        resources:
          memory: {factor: 1.5, limit: 16Gi}
        nodeSelector:
          karpenter.sh/capacity-type: on-demand
        tolerations:
          - {key: pool, value: large, effect: NoSchedule}
        priorityClassName: batch-high
        """,
    schema.ResourcesFields: """
        memory: {factor: 1.5, limit: 16Gi}
        """,
    schema.MemoryFields: """
        factor: 1.5
        limit: 16Gi
        """,
    schema.TolerationFields: """
        key: pool
        operator: Equal
        value: large
        effect: NoSchedule
        """,
    schema.BackoffFields: """
        initialDelay: 10s
        multiplier: 2
        maxDelay: 5m
        jitter: 0.2
        """,
    schema.ExitCodeFields: """
        containerName: base
        operator: In
        values: [137, 143]
        """,
    schema.PodConditionFields: """
        type: DisruptionTarget
        status: "True"
        reason: EvictionByEvictionAPI
        """,
    schema.TerminationMessageFields: """
        containerName: base
        pattern: "no space left"
        """,
    schema.SelectorFields: """
        policy: gpu
        queues: [gpu]
        dagIds: ["train_*", "score_*"]
        """,
}
"""A valid example of each mapping of the file, in YAML."""


def render_reference() -> str:
    """Return the page *Policy file reference* in Markdown."""
    titles = dict(_titles(schema.PolicyFile, "The file"))
    return "\n".join(["# Policy file reference\n", *(_section(model, titles) for model in titles)])


def _titles(model: type[BaseModel], title: str) -> Iterator[tuple[type[BaseModel], str]]:
    """Return each mapping with its title, in the order of the file."""
    yield model, title
    for name, field in fields_of(model).items():
        if nested := model_in(type_of(field)):
            yield from _titles(nested, f"`{name}`")


def _section(model: type[BaseModel], titles: dict[type[BaseModel], str]) -> str:
    rows = [_row(name, field, titles) for name, field in fields_of(model).items()]
    return "\n".join(
        [
            f"## {titles[model]}\n",
            f"{cleandoc(model.__doc__ or '')}\n",
            "| field | allowed | default | meaning |",
            "|---|---|---|---|",
            *rows,
            f"\n```yaml\n{cleandoc(EXAMPLES[model])}\n```\n",
        ]
    )


def _row(name: str, field: FieldInfo, titles: dict[type[BaseModel], str]) -> str:
    nested = model_in(type_of(field))
    values = _link(titles[nested]) if nested else allowed(type_of(field))
    meaning = " ".join((field.description or "").split())
    cells = (f"`{name}`", values, _default(field), meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _link(title: str) -> str:
    return f"see [{title}](#{title.strip('`').lower()})"


def _default(field: FieldInfo) -> str:
    """Return the default as a file would state it; nothing if the field's text explains the default."""
    if field.is_required():
        return "**required**"
    match field.default:
        case None:
            return ""
        case Enum() as default:
            return f"`{default.value}`"
        case default if type_of(field) == Duration:
            return f"`{format_duration(default)}`"
        case default:
            return f"`{json.dumps(default)}`"
