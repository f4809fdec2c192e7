// Command build makes the edge worker's folder, build/edge: app.wasm and the JavaScript around it.
// wrangler.jsonc beside this folder deploys it (docs/edge.md).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/doona-dp/doona/wasm"
)

func main() {
	out := flag.String("out", filepath.Join("build", "edge"), "folder to write")
	flag.Parse()
	if err := wasm.BuildEdge(context.Background(), *out); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}
