#!/usr/bin/env bash
# Builds a release into build/release: programs for Linux and macOS, images, WebAssembly modules, npm packages, bills of
# materials, licences and checksums. One commit and one version of Go give the same bytes in every folder, for every
# user (make test-full PART=release). docs/release.md says how to compare them.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
export TZ=UTC LC_ALL=C CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=true"

programs="relay issuer verifier doona"
servers="relay issuer verifier" # programs that also get images
platforms="linux/amd64 linux/arm64 darwin/amd64 darwin/arm64"
crane=github.com/google/go-containerregistry/cmd/crane@v0.22.1

step() { printf '== %s\n' "$1" >&2; }

[ -z "$(git status --porcelain)" ] || { echo "release.sh: files are changed or not in git: commit them, or use a clean clone" >&2; exit 1; }
./www/setup.sh >/dev/null
version=$(node -p 'require("./www/package.json").version')
commit=$(git rev-parse HEAD)
when=$(git log -1 --format=%ct)
out=build/release
work=$(mktemp -d)
trap 'kill "${registry:-}" 2>/dev/null; rm -rf "$work"' EXIT
rm -rf "$out"
mkdir -p "$out"

# archive FOLDER writes a tar file that does not tell who made it, where and when.
archive() {
  tar --sort=name --mtime="@$when" --owner=0 --group=0 --numeric-owner --format=ustar -C "$1" -cf - .
}

# materials PROGRAM prints the modules that a program was linked from, as a CycloneDX bill of materials.
materials() {
  go version -m "$1" | awk -v program="$(basename "$1")" -v version="$version" '
    $1 == "dep" { list = list (list ? "," : "") sprintf("\n    {\"type\": \"library\", \"name\": \"%s\", \"version\": \"%s\", \"purl\": \"pkg:golang/%s@%s\"}", $2, $3, $2, $3) }
    $1 == "build" && /vcs.revision=/ { sub(/vcs.revision=/, "", $2); revision = $2 }
    /: go1/ { go = $2 }
    END {
      printf "{\n  \"bomFormat\": \"CycloneDX\",\n  \"specVersion\": \"1.6\",\n  \"version\": 1,\n"
      printf "  \"metadata\": {\"component\": {\"type\": \"application\", \"name\": \"doona-%s\", \"version\": \"%s\",\n", program, version
      printf "    \"properties\": [{\"name\": \"revision\", \"value\": \"%s\"}, {\"name\": \"toolchain\", \"value\": \"%s\"}]}},\n", revision, go
      printf "  \"components\": [%s\n  ]\n}\n", list
    }'
}

# check_commit PROGRAM fails if the program does not contain its commit.
check_commit() {
  go version -m "$1" | grep -q "vcs.revision=$commit" ||
    { echo "release.sh: $(basename "$1") does not contain its commit: build in a clone, as Go does not write the commit in a worktree" >&2; exit 1; }
}

step "licences"
# shellcheck disable=SC2046
./scripts/licences.sh $(printf './cmd/%s ' $programs) ./wasm/browser ./wasm/full >"$out/LICENSES.txt"

for platform in $platforms; do
  step "programs for $platform"
  folder="$work/$platform"
  mkdir -p "$folder"
  for program in $programs; do
    GOOS=${platform%/*} GOARCH=${platform#*/} go build -ldflags="-s -w" -o "$folder/$program" "./cmd/$program"
    check_commit "$folder/$program"
    materials "$folder/$program" >"$out/doona-$version-$program-${platform%/*}.cdx.json" # the same for both processors
  done
  cp "$out/LICENSES.txt" deploy/doona@.service deploy/nginx.conf deploy/Caddyfile "$folder"
  archive "$folder" | gzip -9n >"$out/doona-$version-${platform/\//-}.tar.gz"
done

step "images"
GOBIN="$work" GOFLAGS= go install "$crane"
"$work/crane" registry serve --address 127.0.0.1:0 >"$work/registry.log" 2>&1 &
registry=$!
for _ in $(seq 100); do
  address=$(sed -n 's/.*serving on port /127.0.0.1:/p' "$work/registry.log")
  [ -z "$address" ] || break
  sleep .1
done
for program in $servers; do
  images=()
  for arch in amd64 arm64; do
    # The same content as deploy/Dockerfile makes: the program, certificates of authorities, and two empty folders.
    root="$work/image/$program-$arch"
    mkdir -p "$root/etc/ssl/certs"
    cp "$work/linux/$arch/$program" "$root/program"
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    archive "$root" >"$root.tar"
    mkdir -p "$root.state/var/lib/doona" "$root.state/tmp"
    chmod 700 "$root.state/var/lib/doona" "$root.state/tmp"
    tar --sort=name --mtime="@$when" --owner=65532 --group=65532 --numeric-owner --format=ustar -C "$root.state" \
      -cf "$root.state.tar" var/lib/doona tmp
    image="$address/doona-$program:$arch"
    "$work/crane" append --oci-empty-base -f "$root.tar" -f "$root.state.tar" -t "$image" >/dev/null 2>&1
    images+=(--manifest "$("$work/crane" mutate "$image" --set-platform "linux/$arch" --user 65532:65532 \
      --entrypoint /program --cmd serve,--config,/etc/doona/config.yaml -t "$image" 2>/dev/null)")
  done
  "$work/crane" index append "${images[@]}" -t "$address/doona-$program:$version" >/dev/null 2>&1
  "$work/crane" pull --format=oci "$address/doona-$program:$version" "$work/oci/$program" >/dev/null 2>&1
  archive "$work/oci/$program" | gzip -9n >"$out/doona-$version-$program-image.tar.gz"
done

step "modules and npm packages"
go run ./www/build
cp build/www/doona-*.wasm "$out"
# shellcheck disable=SC2086
packed=$(./www/pack.sh $platforms 2>/dev/null) # inside cp's arguments, a failure would not stop the script
# shellcheck disable=SC2086
cp $packed "$out"
for os in linux darwin; do
  for cpu in x64 arm64; do
    tar -xzf "$out/doona-$os-$cpu-$version.tgz" -C "$work" package/doona
    check_commit "$work/package/doona"
  done
done

# The bytes also depend on the version of Go and the certificates.
printf 'commit %s\n%s\ncertificates %s\n' "$commit" "$(go env GOVERSION)" \
  "$(sha256sum </etc/ssl/certs/ca-certificates.crt | cut -c1-64)" >"$out/BUILT.txt"

(cd "$out" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
