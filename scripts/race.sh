#!/usr/bin/env bash
# The servers' tests under the race detector; flags go to go test. It does not look for misused unsafe pointers, of which
# only SQLite has any, nor into the processes that the crash suite kills.
set -euo pipefail
cd "$(dirname "$0")/.."
servers=$(go list ./relay/... ./issuer/... ./verifier/... ./wire/keyfile/... | grep -v /crashtest)
# shellcheck disable=SC2086
CGO_ENABLED=1 exec go test -race -gcflags=all=-d=checkptr=0 -timeout 60m "$@" $servers
