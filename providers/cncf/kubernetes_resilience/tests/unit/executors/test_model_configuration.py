# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import pytest
from kubernetes.client import ApiClient, Configuration, V1EnvVar

from airflow.providers.cncf.kubernetes_resilience.executors.model_configuration import (
    shared_model_configuration,
)


@pytest.fixture(autouse=True)
def default():
    """Leave the client's default configuration as it was."""
    before = Configuration._default
    yield
    Configuration._default = before


def test_models_and_their_copies_share_one_configuration():
    with shared_model_configuration():
        model, other = V1EnvVar("a"), V1EnvVar("b")
    configurations = {id(it.local_vars_configuration) for it in (model, other, copy.deepcopy(model))}
    assert len(configurations) == 1


@pytest.mark.parametrize("host", [None, "https://cluster.example"])
def test_afterwards_the_default_is_what_it_was(host):
    if host:
        Configuration.set_default(Configuration(host=host))
    before = Configuration._default
    with shared_model_configuration():
        # What a pod mutation hook would talk to.
        assert ApiClient().configuration.host == (host or Configuration().host)
    assert Configuration._default is before
    assert copy.deepcopy(V1EnvVar("a").local_vars_configuration) is not None


def test_it_is_what_it_was_after_an_error_too():
    before = Configuration._default
    with pytest.raises(LookupError), shared_model_configuration():
        raise LookupError
    assert Configuration._default is before


def test_a_default_that_was_set_meanwhile_stays():
    with shared_model_configuration():
        Configuration.set_default(Configuration(host="https://another.example"))
    assert Configuration.get_default_copy().host == "https://another.example"
