# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
#
# The entry point of a worker that waits until the test has decided about its pod. The decision is a script
# with the name of the pod: it may print something, it may exit.
decision="$TESTBED_EXECUTIONS/held/$HOSTNAME"
until [ -e "$decision" ]; do sleep 0.1; done
. "$decision"
exec "$@"
