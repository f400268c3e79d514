# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The commands without Airflow, compared with those that Airflow runs."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from configparser import ConfigParser
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml
from airflow.configuration import conf
from airflow.providers.cncf.kubernetes import kube_config

import airflow
import airflow_kubernetes_resilience_launcher as launcher
from airflow.providers.cncf.kubernetes_resilience.cli import quick

from ...support import manifests as m
from .conftest import Outcome

SOURCES = Path(launcher.__file__).parents[1]

PODS = {
    "relaunch": [m.disrupted("EvictionByEvictionAPI")],
    "count": [m.worker_error()],
    "image": [m.image_pull_error()],
    "waiting": [m.unschedulable()],
    "alive": [m.alive()],
    "succeeded": [m.succeeded()],
    "deadline": [m.deadline_exceeded()],
    "several": [m.evicted(), m.out_of_memory(), m.alive()],
    "no pod": [{"kind": "Deployment"}],
}


@pytest.fixture
def run_quick(capsys):
    """Give a function that runs ``airflow-resilience``."""

    def command(*words: str) -> Outcome:
        capsys.readouterr()
        try:
            code = quick.main([str(word) for word in words])
        except SystemExit as end:
            code = int(end.code)
        return Outcome(code, *capsys.readouterr())

    return command


@pytest.fixture
def file_of(tmp_path):
    """Give a function that writes manifests into a file."""

    def write(manifests):
        file = tmp_path / "pods.yaml"
        file.write_text(yaml.safe_dump_all(manifests))
        return file

    return write


@pytest.fixture(autouse=True)
def airflow_cfg(tmp_path, monkeypatch):
    """An empty airflow.cfg, as the scheduler and the commands are given it."""
    file = tmp_path / "airflow.cfg"
    file.touch()
    monkeypatch.setenv("AIRFLOW_CONFIG", str(file))
    return file


# ----------------------------------------------------------------------------------- the same as with Airflow


@pytest.mark.parametrize("name", PODS)
@pytest.mark.parametrize("output", ["table", "json", "yaml", "plain"])
def test_pods_are_explained_as_with_airflow(run, run_quick, file_of, policy_file, name, output):
    words = ["explain", "--file", file_of(PODS[name]), "-o", output]
    for more in ([], ["--policy", policy_file], ["--phase", "execution"]):
        assert run_quick(*words, *more) == run(*words, *more)


def test_every_exit_code_is_among_them(run_quick, file_of):
    codes = {name: run_quick("explain", "--file", file_of(pods)).code for name, pods in PODS.items()}
    assert set(codes.values()) == {0, 1, 2, 3}


@pytest.mark.parametrize("words", [["-"], ["-f", "-"]])
def test_pipe_is_read(run, run_quick, monkeypatch, words):
    def piped(command):
        content = io.BytesIO(json.dumps(m.evicted()).encode())
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(content))
        return command("explain", *words)

    assert piped(run_quick) == piped(run)
    assert piped(run_quick)[0] == 0


def test_policies_are_shown_as_with_airflow(run, run_quick, policy_file, configured):
    for output in ("table", "json", "yaml", "plain"):
        shown = run_quick("show", "-o", output)
        assert shown == run("policy", "show", "-o", output)
        assert "gpu" in shown[1]
        words = ("--policy", policy_file, "-o", output)
        assert run_quick("show", *words) == run("policy", "show", *words)


def test_policy_file_is_checked_as_with_airflow(run, run_quick, policy_file, tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("policies: [{name: a, rules: [{onReasons: [gone], action: Retry}]}]")
    codes = set()
    for file in (policy_file, wrong, tmp_path / "none.yaml"):
        checked = run_quick("lint", file)
        assert checked == run("policy", "lint", file)
        codes.add(checked.code)
    assert codes == {0, 2}


OPTIONS = [
    ("kubernetes_executor", "pod_launch_failure_retries", "0"),
    ("kubernetes_executor", "pod_launch_failure_retries", "often"),
    ("kubernetes_executor", "pod_launch_failure_excluded_container_reasons", "ErrImagePull,Error"),
    ("kubernetes_executor", "worker_pod_pending_fatal_container_state_reasons", "ImagePullBackOff"),
    ("kubernetes_executor", "worker_pod_pending_fatal_container_state_reasons", ""),
    ("kubernetes_resilience", "infrastructure_retry_budget", "-1"),
    ("kubernetes_resilience", "infrastructure_retry_delay", "-1"),
    ("kubernetes_resilience", "infrastructure_retry_reasons", "WORKER_LOST"),
    ("kubernetes_resilience", "infrastructure_retry_reasons", "lost"),
    ("kubernetes_resilience", "retry_policy_file", "$POLICIES_FOLDER/policies.yaml"),
]


@pytest.fixture
def answers(file_of, policy_file, monkeypatch):
    """Give a function that asks a form of the commands all that depends on the configuration."""
    monkeypatch.setenv("POLICIES_FOLDER", str(policy_file.parent))
    file = file_of([m.image_pull_error()])

    def ask(command, *show):
        return command("explain", "--file", file), command(*show, "show")

    return ask


@pytest.fixture
def into_airflow(airflow_cfg, request):
    """Give a function that writes airflow.cfg and has Airflow read it, which it did when the tests began."""

    def write(section, key, value):
        airflow_cfg.write_text(f"[{section}]\n{key} = {value}\n")
        for configuration in (conf, kube_config.conf):
            forget = partial(ConfigParser.remove_option, configuration, section, key)
            request.addfinalizer(forget)
            configuration.read(airflow_cfg)

    return write


@pytest.mark.parametrize("place", ["variable", "airflow.cfg"])
@pytest.mark.parametrize(("section", "key", "value"), OPTIONS)
def test_options_mean_what_they_mean_to_airflow(
    run, run_quick, answers, into_airflow, monkeypatch, place, section, key, value
):
    default = answers(run_quick)
    if place == "variable":
        monkeypatch.setenv(f"AIRFLOW__{section.upper()}__{key.upper()}", value)
    else:
        into_airflow(section, key, value)
    assert answers(run_quick) == answers(run, "policy") != default


def test_a_variable_comes_before_airflow_cfg(run_quick, answers, airflow_cfg, monkeypatch):
    default = answers(run_quick)
    airflow_cfg.write_text("[kubernetes_executor]\npod_launch_failure_retries = 5\n")
    assert answers(run_quick) != default
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES", "1")
    assert answers(run_quick) == default


def test_names_of_options_keep_their_case(run, run_quick, answers, into_airflow):
    default = answers(run_quick)
    into_airflow("kubernetes_executor", "Pod_Launch_Failure_Retries", "0")
    assert answers(run_quick) == answers(run, "policy") == default


def test_value_that_cannot_be_interpolated_is_no_answer(run, run_quick, answers, into_airflow):
    into_airflow("kubernetes_resilience", "infrastructure_retry_budget", "%(y)s")
    for outcome in (*answers(run_quick), *answers(run, "policy")):
        assert (outcome.code, outcome.out) == (2, "")
        assert "Bad value substitution" in outcome.err
        assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("kubernetes_resilience", "api_concurrency", "x"),
        ("kubernetes_executor", "client_factory", "our.factory"),
        ("kubernetes_executor", "worker_pods_creation_batch_size", "x"),
    ],
)
def test_options_that_no_answer_depends_on_are_not_looked_at(
    run, run_quick, answers, monkeypatch, section, key, value
):
    default = answers(run_quick)
    monkeypatch.setenv(f"AIRFLOW__{section.upper()}__{key.upper()}", value)
    assert answers(run_quick) == answers(run, "policy") == default


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("kubernetes_resilience", "retry_policy_file", "~nobody-of-this-name/policies.yaml"),
        ("kubernetes_resilience", "infrastructure_retry_delay", "1e999"),
    ],
)
def test_options_that_the_executor_refuses_are_refused(
    run, run_quick, answers, monkeypatch, section, key, value
):
    monkeypatch.setenv(f"AIRFLOW__{section.upper()}__{key.upper()}", value)
    refused = answers(run_quick)
    assert refused == answers(run, "policy")
    assert [(outcome.code, outcome.out, outcome.err.count("\n")) for outcome in refused] == [(2, "", 1)] * 2


@pytest.mark.parametrize("content", ["0x_", "!!float abc", "[" * 200_000, "1" * 5_000])
def test_what_cannot_be_read_is_no_answer(run, run_quick, tmp_path, content):
    file = tmp_path / "pod.yaml"
    file.write_text(content)
    refused = run_quick("explain", "--file", file)
    assert refused == run("explain", "--file", file)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)


def test_file_without_a_name_is_no_pod_of_the_cluster(run, run_quick):
    refused = run_quick("explain", "--file", "")
    assert refused == run("explain", "--file", "")
    assert refused.code == 2


@pytest.mark.parametrize("value", ["", "{folder}"])
def test_airflow_cfg_that_is_a_folder_is_refused(run_quick, tmp_path, monkeypatch, value):
    # So does Airflow, to which no path is the working directory.
    monkeypatch.setenv("AIRFLOW_CONFIG", value.format(folder=tmp_path))
    refused = run_quick("show")
    assert (refused.code, refused.out) == (2, "")
    assert "Is a directory" in refused.err


@pytest.mark.parametrize(
    "text", ["no section", "[kubernetes_executor]\npod_launch_failure_retries = %(none)s\n"]
)
def test_airflow_cfg_that_cannot_be_read_is_named(run_quick, airflow_cfg, text):
    airflow_cfg.write_text(text)
    refused = run_quick("show")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(f"{airflow_cfg}: ")


def test_without_airflow_cfg_the_defaults_hold_and_that_is_told(run_quick, answers, airflow_cfg, monkeypatch):
    explained, shown = answers(run_quick)
    monkeypatch.delenv("AIRFLOW_CONFIG")
    monkeypatch.setenv("AIRFLOW_HOME", str(airflow_cfg.parent))
    assert answers(run_quick) == (explained, shown)
    airflow_cfg.unlink()
    without = answers(run_quick)
    assert [outcome[:2] for outcome in without] == [explained[:2], shown[:2]]
    assert all(outcome.err.startswith(f"there is no {airflow_cfg}: ") for outcome in without)


def test_pod_of_the_cluster_is_left_to_others(run_quick):
    refused = run_quick("explain", "sales-load-x7k2m9qa")
    assert (refused.code, refused.out) == (2, "")
    assert "kubectl airflow-explain" in refused.err


def test_plugin_without_kubectl_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert quick.run_plugin(["pod"]) == 2
    assert capsys.readouterr().err == "there is no kubectl on PATH\n"


@pytest.fixture
def kubectl(monkeypatch, tmp_path):
    """Give a function that puts a kubectl on PATH, and the file in which that notes its arguments."""
    noted = tmp_path / "arguments"

    def install(ending):
        program = tmp_path / "bin" / "kubectl"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {noted}\n{ending}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
        return noted

    return install


@pytest.mark.parametrize(
    ("words", "passed_on"),
    [
        ([], []),
        (["-n", "sales"], ["--namespace=sales"]),
        (
            ["--context", "lab", "--kubeconfig", "/a file", "-n", "sales"],
            ["--namespace=sales", "--context=lab", "--kubeconfig=/a file"],
        ),
    ],
)
def test_plugin_asks_kubectl_for_the_pod_as_it_is_told(run_quick, capsys, kubectl, file_of, words, passed_on):
    pod = file_of([m.evicted()])
    noted = kubectl(f"cat {pod}")
    expected = run_quick("explain", "--file", pod)
    assert quick.run_plugin(["pod", *words]) == expected.code == 0
    assert capsys.readouterr() == (expected.out, expected.err)
    asked = noted.read_text().splitlines()
    assert asked == ["get", "pod", "--output=json", *passed_on, "--", "pod"]


def test_plugin_ends_as_kubectl_does_and_leaves_it_the_word(kubectl, capfd):
    kubectl('echo "pods \\"gone\\" not found" >&2; exit 1')
    assert quick.run_plugin(["gone"]) == 2
    assert capfd.readouterr() == ("", 'pods "gone" not found\nkubectl gives no pod gone\n')


# -------------------------------------------------------------------------------------------- without Airflow

_RUN = """
import sys
import airflow_kubernetes_resilience_launcher as launcher
try:
    sys.stdout.flush()
    code = launcher.main()
except SystemExit as end:
    code = end.code
print("code", code, file=sys.stderr)
for name, module in sorted(sys.modules.items()):
    print("module", name, getattr(module, "__file__", None), hasattr(module, "__version__"), file=sys.stderr)
"""
_OURS = "airflow.providers.cncf.kubernetes_resilience"


def start(*words, path=()):
    """Run ``airflow-resilience`` in a process of its own and return its code and the files of its modules."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    program = [sys.executable, "-c", _RUN, *map(str, words)]
    ended = subprocess.run(program, capture_output=True, text=True, check=True, env=env)
    lines = [line.split() for line in ended.stderr.splitlines()]
    (code,) = (line[1] for line in lines if line[0] == "code")
    return int(code), {line[1]: line[2] for line in lines if line[0] == "module"}


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "--file", "{pods}", "--policy", "{policies}"],
        ["explain", "--file", "{pods}", "-o", "plain"],
        ["lint", "{policies}"],
        ["show", "--policy", "{policies}", "-o", "yaml"],
    ],
)
def test_neither_airflow_nor_a_client_is_imported(file_of, policy_file, words):
    files = {"pods": file_of([m.image_pull_error()]), "policies": policy_file}
    code, modules = start(*(word.format(**files) for word in words))
    assert code == 0
    of_airflow = {name for name in modules if name.split(".")[0] == "airflow" and not name.startswith(_OURS)}
    assert of_airflow == {"airflow", "airflow.providers", "airflow.providers.cncf"}
    heavy = {"sqlalchemy", "kubernetes", "kubernetes_asyncio", "aiohttp", "opentelemetry"}
    assert heavy.isdisjoint(modules)


def test_airflow_is_found_and_not_run(file_of, tmp_path):
    (tmp_path / "airflow").mkdir()
    (tmp_path / "airflow" / "__init__.py").write_text("raise AssertionError('this is not to be run')")
    code, modules = start("explain", "--file", file_of([m.evicted()]), path=[tmp_path])
    assert code == 0
    assert modules["airflow"] == str(tmp_path / "airflow" / "__init__.py")


def test_provider_is_found_in_a_zip_file(file_of, tmp_path):
    # Before Python 3.13, one without entries for its folders could not be part of a namespace.
    archive = shutil.make_archive(str(tmp_path / "provider"), "zip", SOURCES)
    code, modules = start("explain", "--file", file_of([m.evicted()]), path=[archive])
    assert code == 0
    assert modules[f"{_OURS}.cli.quick"].startswith(f"{archive}{os.sep}")


def test_airflow_that_runs_already_is_left_as_it_is(monkeypatch, policy_file):
    monkeypatch.setattr("sys.argv", ["airflow-resilience", "lint", str(policy_file)])
    assert launcher.main() == 0
    assert sys.modules["airflow"] is airflow
    assert airflow.__version__


def test_without_airflow_it_is_told_what_is_missing(monkeypatch):
    monkeypatch.delitem(sys.modules, "airflow")
    monkeypatch.setattr(launcher, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="airflow"):
        launcher.kubectl_plugin()


def test_commands_are_installed_by_their_names():
    installed = {entry.name: entry.value for entry in entry_points(group="console_scripts")}
    assert installed["airflow-resilience"] == "airflow_kubernetes_resilience_launcher:main"
    assert installed["kubectl-airflow_explain"] == "airflow_kubernetes_resilience_launcher:kubectl_plugin"
