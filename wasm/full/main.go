// Command full is doona-full.wasm. It does what doona.wasm does, and also the checks and the sealing that browsers
// otherwise do with WebCrypto. It serves browsers without X25519, post-quantum tasks and edge workers (docs/wasm.md).
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -trimpath -ldflags='-s -w' -o doona-full.wasm ./wasm/full
package main

func main() {}
