# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re


def test_valid_file(run, policy_file):
    code, out, err = run("policy", "lint", policy_file)
    assert (code, err) == (0, "")
    assert f"{policy_file}: valid" in out
    assert "standard, gpu; default: standard" in out


def test_each_mistake_is_a_line_on_stderr(run, policy_file):
    text = policy_file.read_text().replace("retryLimit: 3", "retryLimt: 3")
    policy_file.write_text(text.replace("action: Fail", "action: fail"))
    code, out, err = run("policy", "lint", policy_file)
    assert (code, out) == (2, "")
    limit, action = err.splitlines()
    assert limit.startswith(f"{policy_file}:5: policies[0].retryLimt")
    assert "Retry, Fail, Count" in action


def test_what_can_have_no_effect_is_a_warning(run, policy_file):
    policy_file.write_text(policy_file.read_text().replace("IMAGE_UNAVAILABLE", "OOMKiled"))
    code, out, err = run("policy", "lint", policy_file)
    assert code == 0
    assert f"{policy_file}: valid" in out
    (warning,) = err.splitlines()
    assert (
        "onReasons[0]: got 'OOMKiled', which is no reason that is known (did you mean OOMKilled?)" in warning
    )
    assert re.match(rf"{policy_file}:\d+: warning: policies\[", warning)


def test_lint_needs_no_usable_configuration(run, policy_file, monkeypatch):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES", "often")
    assert run("policy", "lint", policy_file).code == 0
