#!/usr/bin/env bash
# Installs the proxies, the pooler and the tools for the tests of operators, on a Debian-like machine. It stops services
# that the packages start.
set -euo pipefail
while read -r program package; do
  command -v "$program" >/dev/null && continue
  echo "scripts/operators.sh: installing $package" >&2
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package"; } >&2
  systemctl disable --now "${package%-light}" 2>/dev/null || true
done <<'PACKAGES'
haproxy haproxy
nginx nginx-light
pgbouncer pgbouncer
promtool prometheus
docker-compose docker-compose
PACKAGES
