package task

// ID identifies a task: the SHA-256 of its canonical form.
type ID [32]byte

// SignKey is the Ed25519 public key of a task's owner or of one of its parties.
type SignKey [32]byte

// KeyListHash is the SHA-256 of a party's key list. A task refers to the list by this hash.
type KeyListHash [32]byte

// String returns the ID as 64 hexadecimal digits, the form in URLs and in the output of commands.
func (id ID) String() string {
	const digits = "0123456789abcdef"
	out := make([]byte, 0, 2*len(id))
	for _, b := range id {
		out = append(out, digits[b>>4], digits[b&15])
	}
	return string(out)
}

// IsZero reports whether no key is set.
func (k SignKey) IsZero() bool { return k == SignKey{} }

// IsZero reports whether no hash is set.
func (h KeyListHash) IsZero() bool { return h == KeyListHash{} }
