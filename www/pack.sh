#!/usr/bin/env bash
# Packs the SDK that `go run ./www/build` built as the npm package doona, with type declarations,
# and prints the package's path. Needs the Node packages of setup.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

go run ./www/build -package build/package
(cd www && npx --no-install tsc -p tsconfig.types.json) >&2
rm -f build/doona-*.tgz
npm pack --silent --pack-destination build ./build/package | sed 's|^|build/|'
