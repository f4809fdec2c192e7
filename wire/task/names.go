package task

// ID names a task: the SHA-256 of its canonical form.
type ID [32]byte

// SignKey is the Ed25519 public key of a task's owner or of one of its parties.
type SignKey [32]byte

// KeyListHash is the SHA-256 of a party's key list, by which a task names the list.
type KeyListHash [32]byte

// String returns 64 hexadecimal digits, as in paths and reports.
func (id ID) String() string {
	const digits = "0123456789abcdef"
	out := make([]byte, 0, 2*len(id))
	for _, b := range id {
		out = append(out, digits[b>>4], digits[b&15])
	}
	return string(out)
}

// IsZero reports whether the key is absent.
func (k SignKey) IsZero() bool { return k == SignKey{} }

// IsZero reports whether the hash is absent.
func (h KeyListHash) IsZero() bool { return h == KeyListHash{} }
