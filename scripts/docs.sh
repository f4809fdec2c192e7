#!/usr/bin/env bash
# Builds the documentation site, build/docs, from the repository's Markdown files. Installs the locked Node packages.
# Fails on a broken link.
set -euo pipefail
cd "$(dirname "$0")/../docs/site"
cmp -s package-lock.json node_modules/installed.json || {
  npm ci --ignore-scripts --no-audit --no-fund
  cp package-lock.json node_modules/installed.json
}
npx --no-install vitepress build .
