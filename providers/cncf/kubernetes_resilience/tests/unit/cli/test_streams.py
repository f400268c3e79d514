# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The programs without Airflow, whatever they read from and write to. Exit code 1 is an answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from airflow.providers.cncf.kubernetes_resilience.cli.errors import run_command

from ...support import manifests as m

_PROGRAM = "import sys, airflow_kubernetes_resilience_launcher as launcher; sys.exit(launcher.{}())"


@pytest.fixture(autouse=True)
def environment(tmp_path, monkeypatch):
    """What the scripts below name."""
    manifest = m.evicted()
    manifest["metadata"]["name"] = "ä"
    (tmp_path / "pod.json").write_text(json.dumps(manifest, ensure_ascii=False), encoding="utf-8")
    monkeypatch.setenv("AIRFLOW_CONFIG", os.devnull)
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv("QUICK", _PROGRAM.format("main"))
    monkeypatch.setenv("PLUGIN", _PROGRAM.format("kubectl_plugin"))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # what is written at the end may fail too
    monkeypatch.chdir(tmp_path)


def run(script, stdout=subprocess.PIPE):
    functions = 'quick() { "$PYTHON" -c "$QUICK" "$@"; }; plugin() { "$PYTHON" -c "$PLUGIN" "$@"; }'
    return subprocess.run(
        ["bash", "-c", f"{functions}\n{script}"],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("quick explain -f pod.json >&-", 0, ""),
        ("quick explain -f pod.json -o json >&-", 0, ""),
        ("quick explain -f pod.json >/dev/full", 2, "No space left"),
        ("quick explain -f pod.json -o plain >/dev/full", 2, "No space left"),
        ("quick explain - <&-", 2, "standard input"),
        ("quick lint gone.yaml 2>/dev/full", 2, ""),
        ("quick lint gone.yaml 2>&-", 2, ""),
    ],
)
def test_streams_may_be_closed_or_full(script, code, said):
    ended = run(script)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert ended.stderr.count("\n") == bool(said)
    assert said in ended.stderr


@pytest.mark.parametrize(
    "script", ["explain -f pod.json", "explain -f pod.json -o json", "show -o plain", "--help"]
)
def test_pipe_that_nobody_reads_is_no_answer(script):
    read, write = os.pipe()
    os.close(read)
    ended = run(f"quick {script}", stdout=write)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (2, "")


@pytest.mark.parametrize("output", ["table", "plain", "json"])
@pytest.mark.parametrize("where", ["-f pod.json", "- < pod.json"])
def test_a_stream_need_not_know_each_character(where, output):
    environment = "PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 LC_ALL=C"
    ended = run(f"export {environment}; quick explain -o {output} {where}")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "xe4" in ended.stdout or r"\u00e4" in ended.stdout


@pytest.mark.parametrize(
    ("kubectl", "code", "said"),
    [
        ("#!/bin/sh\ncat pod.json\n", 0, ""),
        ("#!/bin/sh\nprintf '\\377'\n", 2, "kubectl: "),
        ("#!/bin/sh\nprintf '0x_'\n", 2, "kubectl: "),
        ("no program", 2, "Exec format error"),
    ],
)
def test_kubectl_may_say_anything(tmp_path, monkeypatch, kubectl, code, said):
    program = tmp_path / "kubectl"
    program.write_text(kubectl)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    ended = run("export PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 LC_ALL=C; plugin pod")
    assert ended.returncode == code
    assert ended.stderr.count("\n") == bool(said)
    assert said in ended.stderr


def test_a_command_that_is_interrupted_says_nothing(capsys):
    def wait():
        raise KeyboardInterrupt

    assert run_command(wait) == 128 + signal.SIGINT
    assert capsys.readouterr() == ("", "")


def test_a_defect_is_no_answer(capsys):
    assert run_command(lambda: 1 // 0) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err
