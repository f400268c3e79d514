# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A reverse proxy before an API server, real or embedded: faults that no real API server can be told to have.

.. code-block:: python

    with ApiProxy(control_plane.kubeconfig) as proxy:
        proxy.write_kubeconfig(path)  # for the scheduler under test
        with proxy.hold(when=creates_a_pod) as held:
            held.wait_for(1, timeout=30)
            scheduler.kill()  # in the middle of its create call, which now never happens

It runs on an event loop in a thread of its own. The methods may be called from any thread.

What it cannot: connections that change their protocol (exec, attach, port-forward). What differs from a
direct connection: a request is forwarded when its body has arrived as a whole; who brings no token is the
user of the kubeconfig; if a kept connection to the server turns out to be dead, a request that may be
repeated (all but POST and PATCH) is sent a second time, so that the client sees less of a dying server.
"""

from __future__ import annotations

from cluster_lab.api_proxy.proxy import ApiProxy
from cluster_lab.api_proxy.request_faults import Hold

__all__ = ["ApiProxy", "Hold"]
