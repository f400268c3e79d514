# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""From a failure to a decision: the chain of policies, the limits, and what is said about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from airflow_resilience.backoff import Backoff, constant_backoff
from airflow_resilience.context import ContextSource, ExecutionContext, StateChangeCategory, StateChangeReason
from airflow_resilience.decision import NO_POLICY, UNLIMITED, Action, AvoidNode, BudgetUse, Decision
from airflow_resilience.mutation import MemoryIncrease, Mutation
from airflow_resilience.retry_policy.engine import Step, decide, trace
from airflow_resilience.retry_policy.evidence import Evidence, Phase
from airflow_resilience.retry_policy.matchers import OnCategories, OnPhases, OnReasons
from airflow_resilience.retry_policy.rule import InfrastructureBudget, Policy, PolicySet, Rule
from airflow_resilience.retry_policy.selection import SelectedPolicy, Selection

EVICTED = OnReasons(reasons=frozenset({"Evicted"}))
PULL = OnReasons(reasons=frozenset({"ErrImagePull"}))
SPOT = Rule(name="spot", action=Action.RELAUNCH, matchers=(EVICTED,))
OWN = ", the rule's own limit"
P_SPOT = "policy p, rule spot"
COMMON = "globalMaxRetries"
LATE = "applies to whatever no rule before it is about"


def failure(*reasons: str, phase: Phase = Phase.LAUNCH) -> Evidence:
    context = ExecutionContext(
        StateChangeCategory.INFRASTRUCTURE, StateChangeReason.WORKER_LOST, ContextSource.EXECUTOR
    )
    return Evidence(phase=phase, context=context, reasons=reasons)


def policies(*chain: Policy, global_max_retries: int = 10, budget: int = 0) -> PolicySet:
    return PolicySet(
        policies={policy.name: policy for policy in chain},
        default=chain[-1].name,
        global_max_retries=global_max_retries,
        infrastructure=InfrastructureBudget(budget=budget),
        origin="policies.yaml",
    )


def every(policy_set: PolicySet, retries: int | None = None) -> Selection:
    chain = tuple(SelectedPolicy(policy, "") for policy in policy_set.policies.values())
    return Selection(policies=chain, retries=retries)


def relaunched(policy: str, rule: str, times: int = 1) -> list[Decision]:
    return [Decision(action=Action.RELAUNCH, policy=policy, rule=rule, explanation="")] * times


def ask(
    policy_set: PolicySet,
    evidence: Evidence,
    history: Sequence[Decision] = (),
    *,
    retries: int | None = None,
    chance: float = 0.0,
) -> Decision:
    return decide(evidence, every(policy_set, retries), policy_set, history, lambda: chance)


LARGE = Mutation(memory=MemoryIncrease(1.5, "16Gi"), node_selector={"pool": "large", "zone": "a"})


def test_a_rule_changes_the_next_launch_from_one_of_its_relaunches_on() -> None:
    rule = replace(SPOT, mutation=LARGE, mutates_after=2, retry_limit=3)
    policy_set = policies(Policy(name="standard", rules=(rule,)))
    evicted = failure("Evicted")
    decisions = [ask(policy_set, evicted, relaunched("standard", "spot", times)) for times in range(4)]
    assert [decision.mutation for decision in decisions] == [None, LARGE, LARGE, None]
    assert decisions[1].explanation == (
        "launch 2 of 4; policy standard, rule spot;"
        " the next launch has memory times 1.5, 16Gi at most; nodeSelector pool=large, zone=a"
    )
    # Relaunches by other rules do not count.
    assert ask(policy_set, evicted, relaunched("standard", "another", 2)).mutation is None


def test_a_mutation_in_words() -> None:
    tolerations = ({"key": "spot", "operator": "Exists"}, {"operator": "Exists", "effect": "NoExecute"})
    assert str(Mutation(tolerations=tolerations, priority_class_name="high")) == (
        "toleration key=spot, operator=Exists; toleration operator=Exists, effect=NoExecute;"
        " priorityClassName high"
    )


@pytest.mark.parametrize("action", [Action.FAIL, Action.COUNT])
def test_rule_that_does_not_relaunch_has_no_delay_and_no_limit(action: Action) -> None:
    rule = Rule(
        name="oom",
        action=action,
        matchers=(EVICTED,),
        retry_limit=0,
        backoff=Backoff(initial=5, maximum=5, jitter=0),
        avoid_node=AvoidNode.REQUIRE,
    )
    decision = ask(policies(Policy(name="standard", rules=(rule,), retry_limit=3)), failure("Evicted"))
    assert decision == Decision(
        action=action,
        policy="standard",
        rule="oom",
        explanation="launch 1 of 1; policy standard, rule oom",
        budget=BudgetUse(0, 0),
    )


@pytest.mark.parametrize("action", Action)
def test_default_action_ends_the_chain(action: Action) -> None:
    policy_set = policies(
        Policy(name="gpu", rules=(SPOT,), default_action=action), Policy(name="standard", rules=(SPOT,))
    )
    decision = ask(policy_set, failure())
    assert (decision.action, decision.policy, decision.rule) == (action, "gpu", "defaultAction")
    assert decision.explanation == "launch 1 of 11; policy gpu, rule defaultAction"


def test_what_no_rule_is_about_counts() -> None:
    policy_set = policies(Policy(name="gpu", rules=(SPOT,)), Policy(name="standard", rules=(SPOT,)))
    assert ask(policy_set, failure()) == Decision(
        action=Action.COUNT,
        policy="standard",
        rule="defaultAction",
        explanation="launch 1 of 11; no rule is about it; policy standard, rule defaultAction",
        budget=BudgetUse(0, 10),
    )


def test_selection_without_policies_counts() -> None:
    policy_set = policies(Policy(name="standard", rules=(SPOT,)))
    decision = decide(failure("Evicted"), Selection(policies=()), policy_set, [], lambda: 0.0)
    assert (decision.action, decision.policy) == (Action.COUNT, "standard")


class Limits(NamedTuple):
    """How often a launch may be repeated, as a rule, its policy, the task and the file say."""

    rule: int | None = None
    policy: int | None = None
    retries: int | None = None
    common: int = 10

    def decide(self, history: list[Decision], **fields: Any) -> Decision:
        """Return what is decided about a pod of policy p and its rule, spot."""
        rule = replace(SPOT, retry_limit=self.rule, **fields)
        policy = Policy(name="p", rules=(rule,), retry_limit=self.policy)
        policy_set = policies(policy, global_max_retries=self.common)
        return ask(policy_set, failure("Evicted"), history, retries=self.retries)


@pytest.mark.parametrize(
    ("limits", "history", "reached"),
    [
        (Limits(rule=3), relaunched("p", "spot", 3), f"{P_SPOT}: retried 3 of 3 times{OWN}"),
        (Limits(rule=0), [], f"{P_SPOT}: retried 0 of 0 times{OWN}"),
        (
            Limits(policy=2),
            relaunched("p", "spot", 2),
            f"{P_SPOT}: retried 2 of 2 times, the policy's limit for each rule",
        ),
        (Limits(UNLIMITED, UNLIMITED, common=2), relaunched("q", "x", 2), f"{COMMON}: retried 2 of 2 times"),
        (Limits(common=0), [], f"{COMMON}: retried 0 of 0 times"),
        # The task's limit stands in for the policy's, counts what all policies did, and is below the global.
        (
            Limits(policy=9, retries=1),
            relaunched("q", "x"),
            "the task's pod_launch_failure_retries: retried 1 of 1 times",
        ),
        *(
            (
                Limits(policy=1, retries=retries, common=2),
                relaunched("p", "spot", 2),
                f"{COMMON}: retried 2 of 2 times",
            )
            for retries in (99, UNLIMITED)
        ),
        # The task's limit does not lift that of a rule.
        (Limits(1, 1, retries=5), relaunched("p", "spot"), f"{P_SPOT}: retried 1 of 1 times{OWN}"),
        # The first of several is named, and a limit that was lowered meanwhile is reached too.
        (Limits(1, 1, common=1), relaunched("p", "spot", 3), f"{P_SPOT}: retried 3 of 1 times{OWN}"),
    ],
)
def test_limit_that_is_reached_makes_the_failure_count(
    limits: Limits, history: list[Decision], reached: str
) -> None:
    backoff = Backoff(initial=5, maximum=5, jitter=0)
    used = len(history)
    assert limits.decide(history, backoff=backoff, avoid_node=AvoidNode.REQUIRE) == Decision(
        action=Action.COUNT,
        policy="p",
        rule="spot",
        explanation=f"launch {used + 1} of {used + 1}; no relaunch is left; {reached}",
        budget=BudgetUse(used, used),
        ran_out=True,
    )


@pytest.mark.parametrize(
    ("limits", "history", "launches"),
    [
        (Limits(policy=3), [], "1 of 4"),
        (Limits(policy=3), relaunched("p", "spot"), "2 of 4"),
        # A rule's own limit stands in the place of its policy's, above or below it.
        (Limits(5, 3), relaunched("p", "spot"), "2 of 6"),
        (Limits(8, 3), relaunched("p", "spot", 5), "6 of 9"),
        # Each rule counts by itself.
        (Limits(5, 2), relaunched("p", "other", 2), "3 of 8"),
        (Limits(2, 3), relaunched("p", "other"), "2 of 4"),
        (Limits(policy=3), relaunched("p", "other", 3), "4 of 7"),
        # Without a limit for it, only the common one is left of a rule.
        (Limits(UNLIMITED, 3), relaunched("p", "spot", 9), "10 of 11"),
        (Limits(), relaunched("p", "spot", 9), "10 of 11"),
        (Limits(policy=3), relaunched("q", "spot", 2), "3 of 6"),
        (Limits(rule=2), relaunched("p", "other", 2), "3 of 5"),
        (Limits(rule=2), relaunched("q", "spot", 2), "3 of 5"),
        (Limits(policy=0, retries=5), relaunched("p", "spot"), "2 of 6"),
        (Limits(policy=3, retries=UNLIMITED), [], "1 of 11"),
        (Limits(common=UNLIMITED), relaunched("p", "spot", 50), "51 of unlimited"),
    ],
)
def test_limit_that_is_not_reached_says_how_many_launches_there_can_be(
    limits: Limits, history: list[Decision], launches: str
) -> None:
    decision = limits.decide(history)
    assert decision.action is Action.RELAUNCH
    assert decision.explanation == f"launch {launches}; policy p, rule spot"


@pytest.mark.parametrize("action", [Action.COUNT, Action.FAIL])
def test_only_relaunches_are_counted(action: Action) -> None:
    history = [Decision(action=action, policy="p", rule="spot", explanation="")] * 3
    policy_set = policies(Policy(name="p", rules=(SPOT,), retry_limit=1), global_max_retries=1)
    assert ask(policy_set, failure("Evicted"), history).explanation.startswith("launch 1 of 2;")


def test_a_relaunch_that_no_policy_has_decided_is_not_counted() -> None:
    history = [*relaunched(NO_POLICY, "token-expired", 5), *relaunched("p", "spot")]
    policy_set = policies(Policy(name="p", rules=(SPOT,)), global_max_retries=2)
    assert ask(policy_set, failure("Evicted"), history).action is Action.RELAUNCH
    assert ask(policy_set, failure("Evicted"), history * 2).action is Action.COUNT
    for retries, action in ((1, Action.COUNT), (2, Action.RELAUNCH)):
        decision = decide(failure("Evicted"), every(policy_set, retries), policy_set, history, lambda: 0.0)
        assert decision.action is action


def test_default_action_is_counted_like_a_rule() -> None:
    backoff = Backoff(initial=10, multiplier=3, maximum=60, jitter=0)
    policy = Policy(name="p", rules=(), default_action=Action.RELAUNCH, retry_limit=2, backoff=backoff)
    history: list[Decision] = []
    for _ in range(3):
        history.append(ask(policies(policy), failure(), history))
    assert [decision.delay for decision in history] == [10, 30, 0]
    assert [decision.action for decision in history] == [Action.RELAUNCH, Action.RELAUNCH, Action.COUNT]


def test_backoff_grows_with_the_relaunches_of_its_own_rule() -> None:
    backoff = Backoff(initial=10, multiplier=2, maximum=60, jitter=0.5)
    policy_set = policies(Policy(name="p", rules=(SPOT,), backoff=backoff))
    history = [*relaunched("p", "other", 2), *relaunched("q", "spot", 2)]
    assert ask(policy_set, failure("Evicted"), history).delay == 10
    history += relaunched("p", "spot", 2)
    assert ask(policy_set, failure("Evicted"), history).delay == 40
    assert ask(policy_set, failure("Evicted"), history, chance=0.5).delay == 30


@pytest.mark.parametrize(
    ("relaunches", "chance", "delay"),
    [(2, 0.0, 0), (3, 0.0, 2), (3, 0.5, 1.5), (4, 0.0, 4), (7, 0.0, 32), (8, 0.0, 60), (2000, 0.0, 60)],
)
def test_relaunches_from_the_fourth_on_have_a_minimum_delay(
    relaunches: int, chance: float, delay: float
) -> None:
    policy_set = policies(Policy(name="p", rules=(SPOT,)), global_max_retries=UNLIMITED)
    history = relaunched("p", "spot", relaunches)
    assert ask(policy_set, failure("Evicted"), history, chance=chance).delay == delay


def test_minimum_counts_every_relaunch_of_the_try() -> None:
    history = [*relaunched(NO_POLICY, "token-expired"), *relaunched("q", "other"), *relaunched("p", "spot")]
    policy_set = policies(Policy(name="p", rules=(SPOT,)))
    assert ask(policy_set, failure("Evicted"), history).delay == 2


@pytest.mark.parametrize(("initial", "delay", "is_longer"), [(0, 2, True), (2, 2, False), (7, 7, False)])
def test_trace_tells_the_minimum_and_whether_it_is_longer(
    initial: float, delay: float, is_longer: bool
) -> None:
    backoff = Backoff(initial=initial, multiplier=1, maximum=initial, jitter=0)
    policy_set = policies(Policy(name="p", rules=(SPOT,), backoff=backoff))
    found = trace(failure("Evicted"), every(policy_set), policy_set, relaunched("p", "spot", 3), lambda: 0.0)
    why = "relaunch 4 of the try: from relaunch 4 on there is a delay, up to 60 s"
    assert found.steps[-1] == Step("p", "minimumBackoff", is_longer, why)
    assert found.decision.delay == delay


def test_rule_goes_before_its_policy_in_backoff_and_node() -> None:
    own = Rule(
        name="own",
        action=Action.RELAUNCH,
        matchers=(EVICTED,),
        backoff=Backoff(initial=1, maximum=1, jitter=0),
        avoid_node=AvoidNode.NONE,
    )
    plain = Rule(name="plain", action=Action.RELAUNCH, matchers=(PULL,))
    policy_set = policies(
        Policy(
            name="p",
            rules=(own, plain),
            backoff=Backoff(initial=7, maximum=7, jitter=0),
            avoid_node=AvoidNode.REQUIRE,
        )
    )
    first, second = (ask(policy_set, failure(reason)) for reason in ("Evicted", "ErrImagePull"))
    assert (first.delay, first.avoid_node) == (1, AvoidNode.NONE)
    assert (second.delay, second.avoid_node) == (7, AvoidNode.REQUIRE)


def test_trace_tells_each_rule_and_each_limit() -> None:
    infrastructure = OnCategories(frozenset({StateChangeCategory.INFRASTRUCTURE}))
    missed = Rule(name="pull", action=Action.FAIL, matchers=(infrastructure, PULL, EVICTED))
    hit = Rule(name="spot", action=Action.RELAUNCH, matchers=(EVICTED, infrastructure), retry_limit=1)
    policy_set = policies(
        Policy(name="gpu", rules=(missed,)), Policy(name="p", rules=(hit, missed), retry_limit=5)
    )
    history = relaunched("p", "spot")
    found = trace(failure("Evicted"), every(policy_set), policy_set, history, lambda: 0.0)
    assert found.steps == (
        Step("gpu", "pull", False, "reason Evicted and reason WORKER_LOST are not in ErrImagePull"),
        Step("p", "spot", True, "reason Evicted is in Evicted; category INFRASTRUCTURE is in INFRASTRUCTURE"),
        Step("p", "retryLimit", True, f"policy p, rule spot: retried 1 of 1 times{OWN}"),
        Step("p", "globalMaxRetries", False, "globalMaxRetries: retried 1 of 10 times"),
    )
    assert found.decision == ask(policy_set, failure("Evicted"), history)


def test_trace_tells_the_task_limit_and_one_that_is_never_reached() -> None:
    policy_set = policies(Policy(name="p", rules=(SPOT,), retry_limit=5), global_max_retries=UNLIMITED)
    steps = trace(failure("Evicted"), every(policy_set, 2), policy_set, [], lambda: 0.0).steps
    assert steps[1:] == (
        Step(
            "p",
            "pod_launch_failure_retries",
            False,
            "the task's pod_launch_failure_retries: retried 0 of 2 times",
        ),
        Step("p", "globalMaxRetries", False, "globalMaxRetries: retried 0 of any number of times"),
    )


@pytest.mark.parametrize(
    ("default", "why"), [(Action.COUNT, LATE), (Action.FAIL, LATE), (None, "no rule is about it")]
)
def test_trace_tells_the_default_action(default: Action | None, why: str) -> None:
    policy_set = policies(Policy(name="p", rules=(SPOT,), default_action=default))
    steps = trace(failure("Killed"), every(policy_set), policy_set, [], lambda: 0.0).steps
    assert steps == (
        Step("p", "spot", False, "reason Killed and reason WORKER_LOST are not in Evicted"),
        Step("p", "defaultAction", True, why),
    )


def test_limit_of_all_rules_of_a_policy_together() -> None:
    pull = Rule(name="pull", action=Action.RELAUNCH, matchers=(PULL,))
    policy_set = policies(Policy(name="p", rules=(SPOT, pull), shared_limit=3))
    history = [*relaunched("p", "spot", 2), *relaunched("q", "spot", 4)]
    assert ask(policy_set, failure("ErrImagePull"), history).explanation.startswith("launch 7 of 8;")
    history += relaunched("p", "pull")
    assert ask(policy_set, failure("Evicted"), history).explanation.endswith("policy p: retried 3 of 3 times")
    # The task's own limit stands in for it.
    assert ask(policy_set, failure("Evicted"), history, retries=9).action is Action.RELAUNCH


def test_limits_may_be_larger_than_any_fraction() -> None:
    policy_set = policies(Policy(name="p", rules=(SPOT,), retry_limit=10**400), global_max_retries=10**400)
    assert ask(policy_set, failure("Evicted")).explanation.startswith("launch 1 of 1000")


# ------------------------------------------------------------------------------ tasks that were running

LOST = failure("Evicted", phase=Phase.EXECUTION)
OF_THE_TASK = "the task's infrastructure_retry_limit"
BUDGET_RULE = ("infrastructure", "infrastructure")


def lose(
    policy_set: PolicySet,
    history: Sequence[Decision] = (),
    *,
    evidence: Evidence = LOST,
    retries: int | None = None,
    budget: int | None = None,
    chance: float = 0.0,
) -> Decision:
    selection = replace(every(policy_set, retries), infrastructure_retries=budget)
    return decide(evidence, selection, policy_set, history, lambda: chance)


@pytest.mark.parametrize("action", Action)
def test_without_a_budget_no_rule_is_asked_about_a_running_task(action: Action) -> None:
    rule = Rule(name="any", action=action, matchers=(OnPhases(frozenset(Phase)),))
    policy_set = policies(Policy(name="standard", rules=(rule,), default_action=action))
    found = trace(LOST, every(policy_set), policy_set, [], lambda: 0.0)
    why = "infrastructure retries are off: infrastructure_retry_budget is 0"
    assert found.decision == Decision(
        action=Action.COUNT, policy="infrastructure", rule="infrastructure_retry_budget", explanation=why
    )
    assert found.steps == (Step("infrastructure", "infrastructure_retry_budget", True, why),)


def test_a_task_may_switch_it_off() -> None:
    decision = lose(policies(Policy(name="standard", rules=(SPOT,)), budget=5), budget=0)
    assert (decision.action, decision.explanation) == (
        Action.COUNT,
        "infrastructure retries are off: the budget that the task's executor_config states is 0",
    )


def test_rules_come_before_the_infrastructure_budget() -> None:
    policy_set = policies(Policy(name="standard", rules=(replace(SPOT, action=Action.COUNT),)), budget=4)
    assert lose(policy_set, relaunched(*BUDGET_RULE, 2)) == Decision(
        action=Action.COUNT,
        policy="standard",
        rule="spot",
        explanation="infrastructure retries used: 2 of 4; policy standard, rule spot",
        budget=BudgetUse(2, 4),
    )
    other = lose(policy_set, relaunched(*BUDGET_RULE), evidence=failure("Deleted", phase=Phase.EXECUTION))
    assert other == Decision(
        action=Action.RELAUNCH,
        policy="infrastructure",
        rule="infrastructure",
        explanation="infrastructure retry 2 of 4; policy infrastructure, rule infrastructure",
        budget=BudgetUse(2, 4),
        delay=10.0,
        avoid_node=AvoidNode.PREFER,
    )


@pytest.mark.parametrize("action", Action)
def test_default_action_says_nothing_about_a_running_task(action: Action) -> None:
    policy_set = policies(
        Policy(name="first", rules=(), default_action=action), Policy(name="last", rules=(SPOT,)), budget=1
    )
    assert lose(policy_set).policy == "last"


def test_running_task_that_nothing_is_about_counts() -> None:
    own = Evidence(
        phase=Phase.EXECUTION,
        context=ExecutionContext(
            StateChangeCategory.APPLICATION, StateChangeReason.RESOURCE_EXHAUSTION, ContextSource.EXECUTOR
        ),
        reasons=["OOMKilled"],
    )
    policy_set = policies(Policy(name="standard", rules=(SPOT,), default_action=Action.FAIL), budget=3)
    assert lose(policy_set, evidence=own) == Decision(
        action=Action.COUNT,
        policy="infrastructure",
        rule="defaultAction",
        explanation=(
            "infrastructure retries used: 0 of 3; no rule is about it;"
            " policy infrastructure, rule defaultAction"
        ),
        budget=BudgetUse(0, 3),
    )
    memory = Rule(
        name="memory", action=Action.RELAUNCH, matchers=(OnReasons(reasons=frozenset({"OOMKilled"})),)
    )
    assert lose(policies(Policy(name="m", rules=(memory,)), budget=3), evidence=own).rule == "memory"


@pytest.mark.parametrize(
    ("rule_limit", "policy_limit", "budget", "task_budget", "global_limit", "history", "reached"),
    [
        (None, None, 2, None, 10, relaunched(*BUDGET_RULE, 2), "infrastructure_retry_budget: retried 2 of 2"),
        (None, None, 2, None, 10, relaunched("gone", "x", 2), "infrastructure_retry_budget: retried 2 of 2"),
        (None, None, 9, 1, 10, relaunched("p", "spot"), f"{OF_THE_TASK}: retried 1 of 1"),
        (None, None, 0, 1, 10, relaunched("p", "spot"), f"{OF_THE_TASK}: retried 1 of 1"),
        (None, None, UNLIMITED, None, 2, relaunched("q", "x", 2), "globalMaxRetries: retried 2 of 2"),
        (None, None, 5, UNLIMITED, 2, relaunched("q", "x", 2), "globalMaxRetries: retried 2 of 2"),
        (1, None, 5, None, 10, relaunched("p", "spot"), "policy p, rule spot: retried 1 of 1"),
        (None, 1, 5, None, 10, relaunched("p", "spot"), "policy p, rule spot: retried 1 of 1"),
    ],
)
def test_limits_of_a_running_task(
    rule_limit: int | None,
    policy_limit: int | None,
    budget: int,
    task_budget: int | None,
    global_limit: int,
    history: list[Decision],
    reached: str,
) -> None:
    policy_set = policies(
        Policy(name="p", rules=(replace(SPOT, retry_limit=rule_limit),), retry_limit=policy_limit),
        global_max_retries=global_limit,
        budget=budget,
    )
    last = lose(policy_set, history, budget=task_budget)
    used = len(history)
    assert (last.action, last.policy, last.rule, last.delay) == (Action.COUNT, "p", "spot", 0)
    told = f"infrastructure retries used: {used} of {used}; no infrastructure retry is left; {reached} times"
    assert last.explanation.startswith(told)
    before = lose(policy_set, history[:-1], budget=task_budget)
    assert before.action is Action.RELAUNCH
    assert before.explanation == f"infrastructure retry {used} of {used}; policy p, rule spot"


def test_limits_of_launches_say_nothing_about_a_running_task() -> None:
    policy_set = policies(Policy(name="p", rules=(SPOT,), shared_limit=0), budget=1)
    assert lose(policy_set, retries=0).action is Action.RELAUNCH


def test_policys_limit_holds_beside_what_the_task_allows_its_launches() -> None:
    policy_set = policies(Policy(name="p", rules=(SPOT,), retry_limit=0), budget=1)
    assert lose(policy_set, retries=9).action is Action.COUNT


@pytest.mark.parametrize(
    ("own", "policys", "delay"),
    [(None, None, 10.0), (None, 7.0, 7.0), (3.0, 7.0, 3.0), (0.0, None, 0.0), (None, 0.0, 0.0)],
)
def test_delay_of_a_running_task(own: float | None, policys: float | None, delay: float) -> None:
    rule = replace(SPOT, backoff=None if own is None else constant_backoff(own))
    policy = Policy(name="p", rules=(rule,), backoff=None if policys is None else constant_backoff(policys))
    assert lose(policies(policy, budget=1), chance=0.9).delay == delay


def test_each_limit_of_a_running_task_is_a_step() -> None:
    policy_set = policies(Policy(name="gpu", rules=(), default_action=Action.FAIL), budget=2)
    found = trace(LOST, every(policy_set), policy_set, relaunched(*BUDGET_RULE), lambda: 0.0)
    assert [(step.policy, step.rule, step.matched) for step in found.steps] == [
        ("infrastructure", "infrastructure", True),
        ("infrastructure", "infrastructure_retry_budget", False),
        ("infrastructure", "globalMaxRetries", False),
    ]
    assert found.steps[1].why == "infrastructure_retry_budget: retried 1 of 2 times"


def repeated(phase: Phase, limit: int, times: int, action: Action = Action.RELAUNCH) -> list[Decision]:
    """Decide about the same failure, again and again."""
    rule = Rule(name="evicted", action=action, matchers=(EVICTED,))
    policy = Policy(name="standard", rules=(rule,), retry_limit=limit if phase is Phase.LAUNCH else None)
    policy_set = policies(policy, global_max_retries=UNLIMITED, budget=limit)
    made: list[Decision] = []
    for _ in range(times):
        made.append(ask(policy_set, failure("Evicted", phase=phase), made))
    return made


@pytest.mark.parametrize("phase", list(Phase))
def test_budget_is_used_up_until_it_runs_out(phase: Phase) -> None:
    decisions = repeated(phase, 2, 3)
    assert [item.action for item in decisions] == ["relaunch", "relaunch", "count"]
    assert [item.budget for item in decisions] == [(1, 2), (2, 2), (2, 2)]
    assert [item.ran_out for item in decisions] == [False, False, True]


@pytest.mark.parametrize("phase", list(Phase))
def test_budget_without_a_limit(phase: Phase) -> None:
    assert [item.budget for item in repeated(phase, UNLIMITED, 2)] == [(1, None), (2, None)]


@pytest.mark.parametrize("phase", list(Phase))
def test_budget_of_what_a_rule_counts_has_not_run_out(phase: Phase) -> None:
    (decision,) = repeated(phase, 2, 1, Action.COUNT)
    assert (decision.budget, decision.ran_out) == ((0, 2), False)
