#!/usr/bin/env bash
# Builds the release of HEAD twice, each from a clean clone without a build cache. The second is in a folder with a
# longer name, by another user, in another time zone. All bytes must be equal. An image must contain the archive's
# program, and the npm package its modules. Prints as JSON how many files and bytes it compared.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$(pwd)
commit=$(git rev-parse HEAD)
dir=$(mktemp -d)
chmod 755 "$dir"
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT

# build FOLDER [COMMAND...] builds a release in a clone below FOLDER. COMMAND runs the build as another user.
build() {
  local at=$1
  shift
  mkdir -p "$at"
  git clone -q "$root" "$at/doona"
  git -C "$at/doona" checkout -q "$commit"
  [ "$#" = 0 ] || chown -R nobody "$at"
  (cd "$at/doona" && "$@" env HOME="$at" GOPATH="$at/go" GOCACHE="$at/cache" GOFLAGS=-modcacherw make release) >&2
}

build "$dir/one"
other=(env TZ=Asia/Kathmandu LANG=tr_TR.UTF-8)
[ "$(id -u)" != 0 ] || other+=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
build "$dir/a-second-folder/with/a-longer-name" "${other[@]}"

one=$dir/one/doona/build/release
two=$dir/a-second-folder/with/a-longer-name/doona/build/release
diff -r "$one" "$two" >&2
(cd "$one" && sha256sum --quiet -c SHA256SUMS) >&2

mkdir "$dir/archive" "$dir/image" "$dir/npm"
tar -xzf "$one"/doona-*-linux-amd64.tar.gz -C "$dir/archive"
"$dir/archive/relay" version | grep -q "$commit," || { echo "release-twice.sh: 'relay version' does not name the commit" >&2; exit 1; }
tar -xzf "$one"/doona-*-relay-image.tar.gz -C "$dir/image"
found=
for layer in "$dir"/image/blobs/sha256/*; do
  if tar -xOf "$layer" ./program 2>/dev/null | cmp -s - "$dir/archive/relay"; then found=1; fi
done
[ -n "$found" ] || { echo "release-twice.sh: the relay's image does not contain the program of the archive" >&2; exit 1; }
tar -xzf "$one"/doona-[0-9.]*.tgz -C "$dir/npm"
for module in "$one"/doona-*.wasm; do cmp "$module" "$dir/npm/package/$(basename "$module")" >&2; done

printf '{"files": %d, "bytes": %d}\n' "$(ls "$one" | wc -l)" "$(du -sb "$one" | cut -f1)"
