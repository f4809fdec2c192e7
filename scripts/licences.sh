#!/usr/bin/env bash
# Prints the licences of this project and of all code that it links or bundles: scripts/licences.sh PACKAGE...
set -euo pipefail
cd "$(dirname "$0")/.."

# licence HEADING FILE... prints the files under a heading.
licence() {
  local heading=$1 file
  shift
  for file in "$@"; do
    printf '\n\n== %s: %s\n\n' "$heading" "$(basename "$file")"
    cat "$file"
  done
}

cat LICENSE
go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' "$@" | sort -u |
  while read -r path module folder; do
    mapfile -t files < <(find "$folder" -maxdepth 1 -type f -iregex '.*/\(licen[cs]e\|copying\|notice\|patents\)[^/]*' | sort)
    [ "${#files[@]}" -gt 0 ] || { echo "licences.sh: no licence file in $path" >&2; exit 1; }
    licence "$path $module" "${files[@]}"
  done
for folder in www/vendor/*/; do licence "$(basename "$folder")" "$folder"LICENSE*; done
licence "Go, whose library and runtime are in every program" "$(go env GOROOT)/LICENSE"
