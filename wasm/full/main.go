// Command full is doona-full.wasm. It does what doona.wasm does, and also the signature checks and the sealing that
// WebCrypto does for doona.wasm. Browsers without X25519, post-quantum tasks and edge workers need it (docs/wasm.md).
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -trimpath -ldflags='-s -w' -o doona-full.wasm ./wasm/full
package main

func main() {}
