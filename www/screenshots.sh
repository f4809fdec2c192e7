#!/usr/bin/env bash
# Regenerates the pictures of docs/images from those the tests of the pages take: run ./www/test.sh
# before. They are cut, scaled and reduced to a palette by ImageMagick; each must stay below 150 kB.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v convert >/dev/null || { echo "www/screenshots.sh: missing convert: apt-get install imagemagick" >&2; exit 1; }
while read -r from to height; do
  file=docs/images/$to.png
  convert "build/screenshots/$from.png" -gravity north -crop "1180x$height+0+0" +repage -resize 1000x -dither None -colors 128 -strip "$file"
  size=$(stat -c %s "$file")
  ((size < 150000)) || { echo "www/screenshots.sh: $file is $size bytes" >&2; exit 1; }
done <<'LIST'
demo-mean-light demo 1250
verifier-year-dark verifier 1190
web-vitals-light web-vitals 1090
LIST
