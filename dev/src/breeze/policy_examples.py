# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The blocks of docs/policy-examples.md that show what ``explain`` prints.

``python -m breeze.policy_examples`` writes them anew, after a change of an example or of the command; a test
of the provider compares them.
"""

from __future__ import annotations

import os
import re
from io import StringIO
from typing import TYPE_CHECKING

from breeze.paths import BUILD, ROOT

if TYPE_CHECKING:
    from airflow.providers.cncf.kubernetes_resilience.cli.explanation import Explanation

PAGE = ROOT / "docs" / "policy-examples.md"
PODS = ROOT / "docs" / "policy-examples"

#: Columns of the terminal that the output is for: as many as a page of the site shows.
_WIDTH = 90
#: What follows the name of an example is the phase of its pod's task.
_POLICY = re.compile(r"^```yaml policy ([\w-]+)(?: (execution))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OUTPUT = re.compile(r"(^```text explain ([\w-]+)\n).*?^```$", re.MULTILINE | re.DOTALL)


def explain_examples(page: str) -> dict[str, Explanation]:
    """Explain the pod of each example with the policy that the page has for it.

    :param page: the page, in Markdown.
    :returns: the explanations by the names of their examples.
    """
    return {name: _explain(name, policy, phase) for name, phase, policy in _POLICY.findall(page)}


def with_current_output(page: str) -> str:
    """Replace what the page shows of the command's output by what the command prints now.

    :param page: the page, in Markdown.
    :raises KeyError: if there is output of an example that has no policy.
    """
    explanations = explain_examples(page)
    return _OUTPUT.sub(lambda match: f"{match[1]}{_printed(explanations[match[2]])}\n```", page)


def _explain(name: str, policy: str, phase: str) -> Explanation:
    from airflow.providers.cncf.kubernetes.kube_config import KubeConfig

    from airflow.providers.cncf.kubernetes_resilience.cli.explanation import explain, from_pod
    from airflow.providers.cncf.kubernetes_resilience.cli.manifests import from_file
    from airflow_resilience.retry_policy.built_in import built_in
    from airflow_resilience.retry_policy.document import parse_policies
    from airflow_resilience.retry_policy.evidence import Phase
    from airflow_resilience.retry_policy.rule import InfrastructureBudget

    fallback = built_in(1, {"Error"}, InfrastructureBudget(budget=4))
    (facts,) = from_file(str(PODS / f"{name}.yaml"))
    return explain(
        facts,
        phase=Phase(phase) if phase else None,
        given_up_reasons=KubeConfig().worker_pod_pending_fatal_container_state_reasons,
        policies=parse_policies(policy, "policy.yaml", fallback),
        circumstances=from_pod(facts),
    )


def _printed(explanation: Explanation) -> str:
    from rich.console import Console

    from airflow.providers.cncf.kubernetes_resilience.cli.explanation_view import show_explanation

    output = StringIO()
    show_explanation(Console(file=output, width=_WIDTH, no_color=True, force_terminal=False), explanation)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()).strip()


if __name__ == "__main__":
    # Airflow reads it when it is imported, and would make itself at home in ~/airflow.
    os.environ.setdefault("AIRFLOW_HOME", str(BUILD / "airflow-home" / "default"))
    PAGE.write_text(with_current_output(PAGE.read_text()))
