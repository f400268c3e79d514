# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Explanations for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from airflow.providers.cncf.kubernetes_resilience.cli.explanation import Answer, Explanation, State
from airflow.providers.cncf.kubernetes_resilience.cli.output import print_heading, print_names, print_table
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.last_words import summarise
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts
from airflow_resilience.decision import Action, AvoidNode
from airflow_resilience.retry_policy.durations import format_duration
from airflow_resilience.retry_policy.engine import Step

Named = Iterator[tuple[str, object]]

_ACTIONS = {
    Action.RELAUNCH: "relaunch: another pod for the same try, the task's retries are not touched",
    Action.COUNT: "count: the failure uses one of the task's own retries, or fails it if there is none",
    Action.FAIL: "fail: the task fails, whatever retries it has left",
}
_NODES = {
    AvoidNode.NONE: "may be used again",
    AvoidNode.PREFER: "avoided, if there is another one",
    AvoidNode.REQUIRE: "not used again",
}


def show_explanation(console: Console, explanation: Explanation) -> None:
    """Print the steps to the decision in their order."""
    facts = explanation.facts
    print_heading(console, f"Pod {facts.ref}")
    print_names(console, _facts(explanation))
    _show_containers(console, facts)
    if answer := explanation.answer:
        _show_answer(console, explanation, answer)
    else:
        print_names(console, [("state", explanation.standing.text)])


def _facts(explanation: Explanation) -> Named:
    facts = explanation.facts
    yield "launch", facts.launch_number
    yield "phase", facts.phase
    yield "reason", facts.reason
    yield "message", facts.message
    yield "node", facts.node
    yield "deletion", facts.deletion_timestamp
    for condition in facts.conditions:
        words = (f"{condition.type}={condition.status}", condition.reason, condition.message)
        yield "condition", ", ".join(filter(None, words))


def _show_containers(console: Console, facts: PodFacts) -> None:
    rows = [
        {
            "container": item.name,
            "is": item.type,
            "state": item.state,
            "reason": item.reason,
            "exit code": item.exit_code,
            "signal": item.signal,
            "message": summarise(item),  # whole in the JSON
        }
        for item in facts.containers
    ]
    print_table(console, rows)


def _show_answer(console: Console, explanation: Explanation, answer: Answer) -> None:
    print_heading(console, "Why it failed" if _has_failed(explanation) else "Why it would fail")
    print_names(console, _cause(answer))
    print_heading(console, f"Rules ({explanation.policies.origin})")
    print_names(console, ((f"policy {policy.name}", why) for policy, why in answer.selection.policies))
    print_names(console, (("no such policy", name) for name in answer.selection.unknown))
    print_table(console, [_step(step) for step in answer.trace.steps])
    print_heading(console, "Decision" if _has_failed(explanation) else "Decision, if it failed of that")
    print_names(console, _decision(explanation, answer))


def _has_failed(explanation: Explanation) -> bool:
    return explanation.standing.state is State.FAILED


def _cause(answer: Answer) -> Named:
    cause, context = answer.classified.cause, answer.classified.context
    yield "cause", cause.name
    yield "category", context.category
    yield "reason", context.reason
    yield "because", cause.why
    if answer.dependency:
        others = "if launches of others fail for it too, the next ones are held, at no cost, until it is back"
        yield "needs", f"{answer.dependency}: {others}"
    yield "see", cause.url


def _decision(explanation: Explanation, answer: Answer) -> Named:
    decision = answer.trace.decision
    if not _has_failed(explanation):
        yield "state", explanation.standing.text
    yield "action", _ACTIONS[decision.action]
    yield "explanation", decision.explanation
    if decision.action is Action.RELAUNCH:
        yield "delay", _delay(answer)
        yield "node", _NODES[decision.avoid_node] if explanation.facts.node else None
    yield "task phase", explanation.phase
    yield "based on", explanation.circumstances.source


def _step(step: Step) -> dict[str, object]:
    return {
        "policy": step.policy,
        "rule": step.rule,
        "applies": "yes" if step.matched else "no",
        "why": step.why,
    }


def _delay(answer: Answer) -> str:
    if not (delay := answer.trace.decision.delay):
        return "none"
    shortest, longest = format_duration(answer.shortest_delay), format_duration(delay)
    return longest if shortest == longest else f"{shortest} to {longest}"
