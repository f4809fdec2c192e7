package taskfile

import (
	"crypto/ed25519"
	"encoding/base64"
	"slices"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// NewRoll returns a party's statement that another key signs for it in the tasks that list the roll, in the stream
// that begins with root.
func NewRoll(root task.ID, old ed25519.PrivateKey, next task.SignKey) task.Roll {
	roll := task.Roll{Old: task.SignKey(old.Public().(ed25519.PublicKey)), New: next}
	copy(roll.Signature[:], signing.Sign(old, signing.Roll, rollBody(root, next)))
	return roll
}

// CheckRoll returns an error unless the old key signed the roll for the stream that begins with root.
func CheckRoll(root task.ID, roll task.Roll) error {
	if !signing.Verify(roll.Old[:], signing.Roll, rollBody(root, roll.New), roll.Signature[:]) {
		return invalid.Field("stream.rolls", "one to "+FormatKey(roll.New),
			"signed by the key that it replaces, "+FormatKey(roll.Old))
	}
	return nil
}

func rollBody(root task.ID, next task.SignKey) []byte { return slices.Concat(root[:], next[:]) }

// Roll is the JSON form of a roll, in a task or in a file of its own.
type Roll struct {
	Old       string `json:"old"`       // "ed25519:" and unpadded base64url
	New       string `json:"new"`       // likewise
	Signature string `json:"signature"` // unpadded base64url
}

// FormatRoll returns the JSON form.
func FormatRoll(r task.Roll) Roll {
	return Roll{FormatKey(r.Old), FormatKey(r.New), base64.RawURLEncoding.EncodeToString(r.Signature[:])}
}

// Parse parses the JSON form. It does not check the signature: see [CheckRoll].
func (r Roll) Parse() (out task.Roll, err error) {
	if out.Old, err = ParseKey("stream.rolls.old", r.Old); err != nil {
		return out, err
	}
	if out.New, err = ParseKey("stream.rolls.new", r.New); err != nil {
		return out, err
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(r.Signature)
	if err != nil || len(raw) != len(out.Signature) {
		return out, invalid.Field("stream.rolls.signature", r.Signature, "64 bytes in base64url")
	}
	copy(out.Signature[:], raw)
	return out, nil
}
