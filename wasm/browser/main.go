// Command browser is doona.wasm, the module a page loads: it checks a task's claim and
// randomizes values; the host seals the slots (docs/wasm.md).
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -trimpath -ldflags='-s -w' -o doona.wasm ./wasm/browser
//
// Every package it links is listed in imports.txt and costs every visitor of every page.
package main

import _ "github.com/doona-dp/doona/wasm/internal/client" // its exports are the module

func main() {}
