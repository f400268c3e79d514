# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The policy file: its mappings, the meaning of each field, and the compiled rules.

The reference on the site is made of the texts below the fields. Checks of several mappings, such as unique
names, are in ``problems``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator, model_validator
from pydantic.alias_generators import to_camel

from airflow_resilience.backoff import Backoff
from airflow_resilience.decision import Action, AvoidNode
from airflow_resilience.mutation import MemoryIncrease, Mutation
from airflow_resilience.retry_policy import rule as compiled
from airflow_resilience.retry_policy.durations import format_duration
from airflow_resilience.retry_policy.evidence import ConditionEvidence, Phase
from airflow_resilience.retry_policy.fields import (
    Category,
    ConditionStatus,
    Count,
    Duration,
    ExitCodeOperator,
    ExitCodes,
    GlobalLimit,
    Growth,
    LabelKey,
    LabelValue,
    Limit,
    Memory,
    Multiplier,
    Name,
    NodeAvoidance,
    NodeSelector,
    ObjectName,
    Regex,
    Seconds,
    Share,
    SomeOf,
    Text,
    refusal,
)
from airflow_resilience.retry_policy.matchers import (
    ContainerScope,
    Matcher,
    OnCategories,
    OnContainer,
    OnExitCodes,
    OnPhases,
    OnPodConditions,
    OnReasons,
    OnTerminationMessage,
    Operator,
)
from airflow_resilience.retry_policy.patterns import Pattern

ActionWord = Literal["Retry", "Fail", "Count"]
_ACTIONS: Final = {"Retry": Action.RELAUNCH, "Fail": Action.FAIL, "Count": Action.COUNT}


class FileMapping(BaseModel):
    """Base of all mappings of the file: unknown fields are refused, and types are not converted."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=to_camel, use_attribute_docstrings=True
    )


class BackoffFields(FileMapping):
    """Delays before relaunches of a worker."""

    initial_delay: Duration
    """Before the first relaunch."""
    multiplier: Multiplier = 2
    """Growth from one relaunch to the next; 1 keeps the delay constant."""
    max_delay: Duration = 300.0
    """No delay is longer. Not shorter than `initialDelay`, and not longer than `24h`."""
    jitter: Share = 0.2
    """Random share of each delay: workers that failed together are not relaunched together."""

    @model_validator(mode="after")
    def _begins_below_its_maximum(self) -> Self:
        if self.initial_delay > self.max_delay:
            initial, maximum = format_duration(self.initial_delay), format_duration(self.max_delay)
            raise refusal(f"got initialDelay {initial}; allowed: no more than maxDelay, which is {maximum}")
        return self

    def compile(self) -> Backoff:
        """Return the delays in the engine's form."""
        return Backoff(
            initial=self.initial_delay, multiplier=self.multiplier, maximum=self.max_delay, jitter=self.jitter
        )


class ExitCodeFields(FileMapping):
    """
    Exit codes of containers, compared as in the `podFailurePolicy` of a Kubernetes Job: a container that
    ended with 0 is ignored, and one match is enough.
    """

    container_name: Name | None = None
    """Only this container counts. Default: the rule's `containerName`, else every container."""
    operator: ExitCodeOperator
    """`In`: the exit code is one of the values. `NotIn`: the exit code is none of them."""
    values: ExitCodes
    """The exit codes, each once. 0 is not allowed with `In`."""

    @field_validator("values")
    @classmethod
    def _no_success_with_in(cls, values: list[int], info: ValidationInfo) -> list[int]:
        if 0 in values and info.data.get("operator") is Operator.IN:
            raise refusal("got 0; allowed with In: other exit codes (0 is no failure)")
        return values


class PodConditionFields(FileMapping):
    """A condition of the pod, as `kubectl get pod -o yaml` shows it."""

    type: Text
    """For example `DisruptionTarget`."""
    status: ConditionStatus = "True"
    """Quoted, or YAML reads a boolean."""
    reason: Text | None = None
    """For example `PreemptionByScheduler`. Default: any."""

    def compile(self) -> ConditionEvidence:
        """Return the condition in the engine's form."""
        return ConditionEvidence(type=self.type, status=self.status, reason=self.reason)


class TerminationMessageFields(FileMapping):
    """Termination messages of the containers, and the message of the pod."""

    container_name: Name | None = None
    """Only this container's message is searched. Default: the rule's `containerName`, else those of every
    container and of the pod itself."""
    pattern: Regex
    """Found anywhere in the first 4096 characters of the message, in the
    [syntax of RE2](https://github.com/google/re2/wiki/Syntax), which Go and Armada have too. `(?i)` at its
    beginning disregards case; `^` and `$` are the beginning and end of the message, with `(?m)` of a line."""


class MemoryFields(FileMapping):
    """
    More memory for the worker container: its request, and its limit, as far as the pod template or the task
    states them.
    """

    factor: Growth
    """Factor of the previous launch's memory."""
    limit: Memory
    """No request and no limit is raised above this quantity. Higher values stay."""


class ResourcesFields(FileMapping):
    """Resources of the worker container."""

    memory: MemoryFields
    """More memory."""


class TolerationFields(FileMapping):
    """
    A toleration, as a
    [pod has it](https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/).
    """

    key: LabelKey | None = None
    """Of the taint. Default: any, with `Exists`."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """`Equal`: the taint has the value. `Exists`: whatever its value."""
    value: LabelValue | None = None
    """Of the taint, with `Equal`. Default: an empty one."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Of the taint. Default: any."""
    toleration_seconds: Seconds | None = None
    """Time for which a taint with `NoExecute` is tolerated. Default: no limit."""

    @model_validator(mode="after")
    def _is_accepted_by_the_api_server(self) -> Self:
        if self.operator == "Exists" and self.value is not None:
            raise refusal("has a value; allowed with Exists: none")
        if self.operator == "Equal" and self.key is None:
            raise refusal("has no key; allowed without one: operator Exists")
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise refusal("has tolerationSeconds; allowed with them: effect NoExecute")
        return self


class MutateFields(FileMapping):
    """
    Changes of a rule to further launches of the same try. Each relaunch by the rule repeats the changes;
    changes by other rules stay. The pod mutation hook has the last word.
    """

    after: Count = 1
    """First relaunch by this rule for one try with the changes; failed launches and losses of the running
    task are counted apart. 2: the first relaunch is unchanged."""
    resources: ResourcesFields | None = None
    """Resources of the worker container."""
    node_selector: NodeSelector | None = None
    """Labels that the node has to have, added to the pod's `nodeSelector`, or in place of its values."""
    tolerations: SomeOf[TolerationFields] | None = None
    """Added to those of the pod."""
    priority_class_name: ObjectName | None = None
    """Name of the PriorityClass, instead of the pod's own."""

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.compile().to_dict():
            raise refusal(
                "changes nothing; allowed: one or more of resources, nodeSelector, tolerations,"
                " priorityClassName"
            )
        return self

    def compile(self) -> Mutation:
        """Return the changes in the engine's form."""
        memory = self.resources.memory if self.resources else None
        return Mutation(
            memory=MemoryIncrease(memory.factor, memory.limit) if memory else None,
            node_selector=self.node_selector or {},
            tolerations=tuple(
                toleration.model_dump(by_alias=True, exclude_none=True)
                for toleration in self.tolerations or ()
            ),
            priority_class_name=self.priority_class_name,
        )


class RuleFields(FileMapping):
    """
    An action for some failures. A rule matches if each of its conditions does: `phases`, `onExitCodes`,
    `onPodConditions`, `onReasons`, `onCategories`, `onTerminationMessage`, `containerName`. At least one is
    needed; `defaultAction` of the policy is for every other failed launch.
    """

    name: Name | None = None
    """Unique in its policy; logs and the count of relaunches know the rule by it. Default: its place, as
    `rules[0]`, which changes if a rule is put before it."""
    phases: SomeOf[Literal["Launch", "Execution"]] | None = None
    """`Launch`: none of the task's code has run. `Execution`: the task was running; rules are then asked only
    if the task's infrastructure budget is not 0. Default: both."""
    on_exit_codes: ExitCodeFields | None = None
    """Exit codes of containers."""
    on_pod_conditions: SomeOf[PodConditionFields] | None = None
    """Conditions of the pod; one match is enough."""
    on_reasons: SomeOf[Text] | None = None
    """Reasons in one word, of which one is enough: of the pod (`Evicted`), of a container (`OOMKilled`,
    `ErrImagePull`), or of the classification (`WORKER_TERMINATION`)."""
    on_categories: SomeOf[Category] | None = None
    """Categories of failures; one match is enough."""
    on_termination_message: TerminationMessageFields | None = None
    """Messages of the containers and of the pod."""
    container_name: Name | None = None
    """Container whose failure ended the pod. The other conditions look at this container only, unless they
    name another."""
    include_init_containers: bool = True
    """Whether the other conditions look at init containers and native sidecars too."""
    action: ActionWord
    """`Retry`: another worker for the same try, and no retry of the task is used; a running task begins anew.
    `Count`: the failure is one of the task's own, which Airflow retries or not. `Fail`: the task fails,
    without its remaining retries."""
    retry_limit: Limit | None = None
    """Relaunches by this rule for one try of a task; after them, `Count`. Failed launches and losses of the
    running task are counted apart. Default: the policy's, else `globalMaxRetries`."""
    backoff: BackoffFields | None = None
    """Default: the policy's, else `defaultBackoff`; for a running task, else
    `[kubernetes_resilience] infrastructure_retry_delay`."""
    avoid_node: NodeAvoidance | None = None
    """Default: the policy's."""
    mutate: MutateFields | None = None
    """Changes of further launches, if the action is `Retry`. Default: none."""

    @model_validator(mode="after")
    def _launches_what_it_mutates(self) -> Self:
        if self.mutate and self.action != "Retry":
            raise refusal(f"has mutate with action {self.action}; allowed with mutate: Retry")
        return self

    @model_validator(mode="after")
    def _has_a_condition(self) -> Self:
        if not any(self._matchers()):
            raise refusal(
                "has no condition; allowed: one or more of phases, onExitCodes, onPodConditions, onReasons,"
                " onCategories, onTerminationMessage, containerName (for all failed launches there is"
                " defaultAction)"
            )
        return self

    def compile(self, index: int) -> compiled.Rule:
        """Return the rule in the engine's form; ``index`` is its place in the policy."""
        return compiled.Rule(
            name=self.name or f"rules[{index}]",
            action=_ACTIONS[self.action],
            matchers=tuple(self._matchers()),
            retry_limit=self.retry_limit,
            backoff=self.backoff.compile() if self.backoff else None,
            avoid_node=self.avoid_node,
            mutation=self.mutate.compile() if self.mutate else None,
            mutates_after=self.mutate.after if self.mutate else 1,
        )

    def _matchers(self) -> Iterator[Matcher]:
        if self.phases:
            yield OnPhases(frozenset(Phase(phase.lower()) for phase in self.phases))
        if self.on_categories:
            yield OnCategories(frozenset(self.on_categories))
        if self.container_name:
            yield OnContainer(self.container_name)
        if self.on_reasons:
            yield OnReasons(reasons=frozenset(self.on_reasons), containers=self._scope(None))
        if self.on_pod_conditions:
            yield OnPodConditions(tuple(condition.compile() for condition in self.on_pod_conditions))
        if codes := self.on_exit_codes:
            scope = self._scope(codes.container_name)
            yield OnExitCodes(operator=codes.operator, values=frozenset(codes.values), containers=scope)
        if message := self.on_termination_message:
            scope = self._scope(message.container_name)
            yield OnTerminationMessage(pattern=Pattern(message.pattern), containers=scope)

    def _scope(self, name: str | None) -> ContainerScope:
        return ContainerScope(name=name or self.container_name, include_init=self.include_init_containers)


class PolicyFields(FileMapping):
    """Rules in their order; the first that matches decides."""

    name: Name
    """Unique in the file. `built-in` and `infrastructure` are reserved: both are in force without a file."""
    retry_limit: Limit | None = None
    """For rules without one, and for `defaultAction`: relaunches for one try of a task, counted for each rule
    by itself; after them, `Count`. For launches, a task may ask for another limit. Default:
    `globalMaxRetries`."""
    backoff: BackoffFields | None = None
    """For rules without one. Default: `defaultBackoff`."""
    avoid_node: NodeAvoidance = AvoidNode.NONE
    """For rules without one: whether the next worker avoids the failed worker's node. `prefer`: the node is
    used only if no other fits. `require`: the worker waits for another node."""
    default_action: ActionWord | None = None
    """For failed launches that no rule matches. Default: the next policy of the task is asked; after the last
    one, `Count`. For a running task that no rule matches, the infrastructure budget decides."""
    rules: SomeOf[RuleFields] | None = None
    """Optional with a `defaultAction`."""

    @model_validator(mode="after")
    def _decides_something(self) -> Self:
        if self.rules is None and self.default_action is None:
            raise refusal("decides nothing; allowed: rules, defaultAction, or both")
        return self

    def compile(self, default_backoff: Backoff | None = None) -> compiled.Policy:
        """Return the policy in the engine's form, with the backoff of a policy that states none."""
        return compiled.Policy(
            name=self.name,
            rules=tuple(rule.compile(index) for index, rule in enumerate(self.rules or ())),
            default_action=_ACTIONS[self.default_action] if self.default_action else None,
            retry_limit=self.retry_limit,
            backoff=self.backoff.compile() if self.backoff else default_backoff,
            avoid_node=self.avoid_node,
        )


class SelectorFields(FileMapping):
    """
    Tasks that get a policy without asking for it. Every stated field has to match, and one is needed besides
    `policy`; of the values of a field, one is enough.
    """

    policy: Name
    """Name of the policy."""
    queues: SomeOf[Text] | None = None
    """Airflow queues."""
    pools: SomeOf[Text] | None = None
    """Airflow pools."""
    dag_ids: SomeOf[Text] | None = None
    """DAG ids; `*`, `?` and `[...]` stand for other characters as in file names."""
    dag_tags: SomeOf[Text] | None = None
    """DAG tags."""

    @model_validator(mode="after")
    def _selects_something(self) -> Self:
        if not (self.queues or self.pools or self.dag_ids or self.dag_tags):
            raise refusal(
                "selects no task; allowed: one or more of queues, pools, dagIds, dagTags (all tasks have the"
                " defaultPolicy)"
            )
        return self

    def compile(self) -> compiled.Selector:
        """Return the selector in the engine's form."""
        return compiled.Selector(
            policy=self.policy,
            queues=frozenset(self.queues or ()),
            pools=frozenset(self.pools or ()),
            dag_ids=tuple(self.dag_ids or ()),
            dag_tags=frozenset(self.dag_tags or ()),
        )


class PolicyFile(FileMapping):
    """
    The whole file. The policies of a task are asked one after another: selected ones in the order of
    `selection`, those of the task's own options, and the default one.
    """

    default_policy: Name | None = None
    """Name of the policy that every task has, after all others. Default: `built-in`."""
    global_max_retries: GlobalLimit = 10
    """Relaunches for one try of a task, of all rules together, above all limits of policies and tasks: the
    emergency brake, for failed launches and for losses of the running task, each by itself."""
    default_backoff: BackoffFields | None = None
    """For policies of this file without a backoff, and their rules without one. Default: relaunch at once; a
    running task after `[kubernetes_resilience] infrastructure_retry_delay`."""
    policies: SomeOf[PolicyFields]
    """The policies."""
    selection: SomeOf[SelectorFields] | None = None
    """Policies for selected tasks."""

    def compile(self, origin: str, fallback: compiled.PolicySet) -> compiled.PolicySet:
        """
        Return the file in the engine's form.

        :param origin: origin of the file, for people
        :param fallback: policies in force without a file; they join those of the file
        """
        backoff = self.default_backoff.compile() if self.default_backoff else None
        policies = (policy.compile(backoff) for policy in self.policies)
        return compiled.PolicySet(
            policies={**fallback.policies, **{policy.name: policy for policy in policies}},
            default=self.default_policy or fallback.default,
            global_max_retries=self.global_max_retries,
            infrastructure=fallback.infrastructure,
            selectors=tuple(selector.compile() for selector in self.selection or ()),
            origin=origin,
        )
