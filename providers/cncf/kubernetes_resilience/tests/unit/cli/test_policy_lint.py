# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations


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


def test_file_that_is_not_there(run, tmp_path):
    code, _, err = run("policy", "lint", tmp_path / "none.yaml")
    assert code == 2
    assert "none.yaml" in err


def test_lint_needs_no_usable_configuration(run, policy_file, monkeypatch):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES", "often")
    assert run("policy", "lint", policy_file).code == 0
