package taskfile

import (
	"crypto/ed25519"
	"encoding/base64"
	"slices"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// NewRotation returns a party's signed statement that its key next replaces its key old. It is valid in the stream that
// begins with root, for the tasks that list it.
func NewRotation(root task.ID, old ed25519.PrivateKey, next task.SignKey) task.Rotation {
	rotation := task.Rotation{Old: task.SignKey(old.Public().(ed25519.PublicKey)), New: next}
	copy(rotation.Signature[:], signing.Sign(old, signing.Rotation, rollBody(root, next)))
	return rotation
}

// CheckRotation returns an error unless the rotation's old key signed it for the stream that begins with root.
func CheckRotation(root task.ID, rotation task.Rotation) error {
	if !signing.Verify(rotation.Old[:], signing.Rotation, rollBody(root, rotation.New), rotation.Signature[:]) {
		return invalid.Field("stream.rotations", "one to "+FormatKey(rotation.New),
			"signed by the key that it replaces, "+FormatKey(rotation.Old))
	}
	return nil
}

func rollBody(root task.ID, next task.SignKey) []byte { return slices.Concat(root[:], next[:]) }

// Rotation is the JSON form of a [task.Rotation], in a task or in a file of its own.
type Rotation struct {
	Old       string `json:"old"`       // "ed25519:" and unpadded base64url
	New       string `json:"new"`       // in the same form
	Signature string `json:"signature"` // unpadded base64url
}

// FormatRotation returns the JSON form.
func FormatRotation(r task.Rotation) Rotation {
	return Rotation{FormatKey(r.Old), FormatKey(r.New), base64.RawURLEncoding.EncodeToString(r.Signature[:])}
}

// Parse parses the JSON form. It does not check the signature: see [CheckRotation].
func (r Rotation) Parse() (out task.Rotation, err error) {
	if out.Old, err = ParseKey("stream.rotations.old", r.Old); err != nil {
		return out, err
	}
	if out.New, err = ParseKey("stream.rotations.new", r.New); err != nil {
		return out, err
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(r.Signature)
	if err != nil || len(raw) != len(out.Signature) {
		return out, invalid.Field("stream.rotations.signature", r.Signature, "64 bytes in base64url")
	}
	copy(out.Signature[:], raw)
	return out, nil
}
