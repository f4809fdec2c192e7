// Package signing separates what the Ed25519 keys of owners, relays, issuers and verifiers sign by its purpose, so that
// a signature made for one serves no other, and signs what clocks say. All that goes between parties is signed by it.
package signing

import (
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/wire/task"
)

// Purpose separates what an Ed25519 key signs.
type Purpose string

// The purposes of signatures.
const (
	Task      Purpose = "task"
	KeyList   Purpose = "keys"
	Manifest  Purpose = "manifest"
	Pull      Purpose = "pull"
	Confirm   Purpose = "confirm"
	AskEnd    Purpose = "ask-end" // a request for the signed end of an epoch
	End       Purpose = "end"
	Updates   Purpose = "news" // a request for what there is of all tasks of two relays
	Time      Purpose = "time"
	Succeed   Purpose = "successor" // an owner's request about the next task of a stream
	Owner     Purpose = "owner"     // an owner's request about the tasks for which a relay has approved it
	Statement Purpose = "statement" // who signs the tasks of a stream from now on
	Roll      Purpose = "roll"      // which key signs for a party of a stream from now on
)

// signed = "doona-v<version> <purpose>" ‖ 0x00 ‖ body.
func signed(p Purpose, body []byte) []byte {
	return append(fmt.Appendf(nil, "doona-v%d %s\x00", task.Version, p), body...)
}

// Sign returns the Ed25519 signature of body for a purpose.
func Sign(key ed25519.PrivateKey, p Purpose, body []byte) []byte {
	return ed25519.Sign(key, signed(p, body))
}

// Verify reports whether signature is key's over body for a purpose.
func Verify(key ed25519.PublicKey, p Purpose, body, signature []byte) bool {
	return len(key) == ed25519.PublicKeySize && ed25519.Verify(key, signed(p, body), signature)
}

// ErrSigner is returned where a signature is not that of the party the task names.
var ErrSigner = errors.New("signed by a stranger")
