// Package signing makes and verifies the Ed25519 signatures of owners, relays, issuers and verifiers, and signs their
// times. Each signature covers its purpose, so it is not valid for another purpose. All signatures between parties use
// this package.
package signing

import (
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/wire/task"
)

// Purpose is what a signature is for.
type Purpose string

// The purposes of signatures.
const (
	Task      Purpose = "task"
	Set       Purpose = "set"
	KeyList   Purpose = "keys"
	Manifest  Purpose = "manifest"
	Pull      Purpose = "pull"
	Confirm   Purpose = "confirm"
	AskEnd    Purpose = "ask-end" // a request for the signed end of an epoch
	End       Purpose = "end"
	Updates   Purpose = "updates" // a request for the open epochs of all tasks of two relays
	Time      Purpose = "time"
	Succeed   Purpose = "successor" // an owner's request that concerns the next task of a stream
	Owner     Purpose = "owner"     // an owner's request that concerns tasks, to a relay that has approved the owner
	Withdraw  Purpose = "withdraw"  // an owner's request that ends a task at a relay and erases its keys
	Statement Purpose = "statement" // names the key that signs the later tasks of a stream
	Rotation  Purpose = "rotation"  // names the key that signs for a party in later tasks of a stream
)

// signed returns the bytes that a signature covers: "doona-v<version> <purpose>" ‖ 0x00 ‖ body.
func signed(p Purpose, body []byte) []byte {
	return append(fmt.Appendf(nil, "doona-v%d %s\x00", task.Version, p), body...)
}

// Sign returns the Ed25519 signature of body for a purpose.
func Sign(key ed25519.PrivateKey, p Purpose, body []byte) []byte {
	return ed25519.Sign(key, signed(p, body))
}

// Verify reports whether signature is key's signature of body for a purpose.
func Verify(key ed25519.PublicKey, p Purpose, body, signature []byte) bool {
	return len(key) == ed25519.PublicKeySize && ed25519.Verify(key, signed(p, body), signature)
}

// ErrSigner is the error for a signature that is not from the party that the task names.
var ErrSigner = errors.New("signed by a stranger")
