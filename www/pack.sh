#!/usr/bin/env bash
# Packs npm packages: pack.sh [PLATFORM...], such as linux/amd64; by default this machine's platform. The package doona
# is the SDK that `go run ./www/build` has built, with type declarations. One more package per platform contains the
# program that `npx doona dev` starts. Prints the packages' paths. Fails if the program's package for linux-x64 exceeds
# its size limit. Run setup.sh first.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- "$(go env GOOS)/$(go env GOARCH)"

go run ./www/build -package build/package
rm -rf build/types
(cd www && npx --no-install tsc -p tsconfig.types.json) >&2
node www/npm/types.mjs build/types build/package/types
go run ./www/build -programs build/programs "$@"
./scripts/licences.sh ./cmd/doona >build/programs/LICENSES.txt
for folder in build/programs/*/; do cp build/programs/LICENSES.txt "$folder"; done
rm -f build/doona-*.tgz
for folder in build/package build/programs/*/; do
  npm pack --silent --pack-destination build "./$folder" | sed 's|^|build/|'
done

most=10500000 # size limit in bytes, compressed
for package in build/doona-linux-x64-*.tgz; do
  [ -e "$package" ] || continue # no package for linux-x64 was requested
  size=$(stat -c %s "$package")
  echo "$package has $size bytes, of $most that it may have" >&2
  [ "$size" -le "$most" ] || exit 1
done
