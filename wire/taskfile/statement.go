package taskfile

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// statementLabel begins every statement.
const statementLabel = "doona-statement"

// Statement names the key that signs the tasks of a stream after some position, or ends the stream there. An era
// begins with statement 0, signed by the recovery key, and voids all statements of earlier eras. Era 0 has no
// statement 0: it begins with the owner's published key. Each further statement is signed by the key that the
// previous statement names. So a thief of an owner's key loses control to the recovery key, whatever the thief has
// signed.
type Statement struct {
	Label    string
	Version  uint64
	Root     []byte // Id of the stream's first task.
	Era      uint64
	Number   uint64
	Position uint64 // Of the newest task; who signed it and earlier tasks no longer matters.
	Task     []byte // Its id.
	Key      []byte // The key that signs what follows; empty ends the stream, and clients stop reporting.
}

// SignedStatement is a statement with its signature: msgpack [statement, signature].
type SignedStatement struct {
	Statement []byte
	Signature []byte
}

// Trust is what a party knows about a stream from a page's text or from its configuration.
type Trust struct {
	Root     task.ID
	Owner    task.SignKey
	Recovery task.SignKey // Zero: none, and only era 0 is accepted.
	Allow    []string     // What later tasks may change, if the first task allows it, too.

	// Keys of relays that may replace another, if the first task allows it.
	Candidates []task.SignKey
}

// Authority says which key decides about a stream after its statements. The zero value applies to a stream without
// statements.
type Authority struct {
	Era, Number uint64
	Position    uint64 // All tasks up to here lead to Task.
	Task        task.ID
	Key         task.SignKey
	Stopped     bool
}

// NewStatement returns the statement that follows a, about a stream whose newest task is last. The recovery key signs
// it if recover is true, else a's key. A zero key ends the stream.
func NewStatement(trust Trust, a Authority, last *Open, key task.SignKey, signer ed25519.PrivateKey) (
	*SignedStatement, error) {
	by := task.SignKey(signer.Public().(ed25519.PublicKey))
	s := Statement{Label: statementLabel, Version: task.Version, Root: trust.Root[:], Era: a.Era, Number: a.Number + 1,
		Position: last.Stream.Position, Task: last.ID[:], Key: key[:]}
	if key == (task.SignKey{}) {
		s.Key = []byte{}
	}
	switch {
	case by == trust.Recovery:
		s.Era, s.Number = a.Era+1, 0
	case a.Stopped || by != a.Key:
		return nil, invalid.Field("sign-key", FormatKey(by), "the stream owner's key, or the recovery key")
	}
	body, err := codec.Marshal(&s)
	if err != nil {
		return nil, err
	}
	return &SignedStatement{body, signing.Sign(signer, signing.Statement, body)}, nil
}

// Statements are the statements of the newest era, by number.
type Statements []*SignedStatement

// With adds a statement after the last one. If it begins a later era, it replaces all.
func (s Statements) With(next *SignedStatement, trust Trust) (Statements, error) {
	now, err := s.Authority(trust)
	if err != nil {
		return nil, err
	}
	after, err := now.Next(next, trust)
	if err != nil {
		return nil, err
	}
	all := append(slices.Clone(s), next)
	if after.Era > now.Era {
		all = Statements{next}
	}
	_, err = all.Authority(trust)
	return all, err
}

// Next returns the authority after one more statement, or an error if that does not follow. It verifies at most one
// signature.
func (a Authority) Next(next *SignedStatement, trust Trust) (Authority, error) {
	one, err := next.parse(trust.Root)
	if err != nil {
		return a, err
	}
	return a.after(one, next, trust, one.Era > a.Era)
}

// Authority checks the statements and returns the resulting authority. It does not check tasks: [Authority.Check]
// does.
func (s Statements) Authority(trust Trust) (Authority, error) {
	a := Authority{Key: trust.Owner}
	if len(s) > MaxStatements {
		return a, invalid.Field("statements", strconv.Itoa(len(s)), "at most "+strconv.Itoa(MaxStatements)+" of an era")
	}
	for i, signed := range s {
		one, err := signed.parse(trust.Root)
		if err == nil {
			a, err = a.after(one, signed, trust, i == 0)
		}
		if err != nil {
			return a, fmt.Errorf("statement %d: %w", i, err)
		}
	}
	return a, nil
}

// ParseStatement parses a signed statement about the stream of a first task, without checking its signature.
func ParseStatement(raw []byte, root task.ID) (*Statement, error) {
	signed, err := ParseSignedStatement(raw)
	if err != nil {
		return nil, err
	}
	return signed.parse(root)
}

// ParseSignedStatement parses the msgpack form of a statement and its signature, and checks neither.
func ParseSignedStatement(raw []byte) (*SignedStatement, error) {
	if len(raw) > MaxStatement {
		return nil, fmt.Errorf("couldn't read the statement: %d bytes, at most %d", len(raw), MaxStatement)
	}
	signed := &SignedStatement{}
	return signed, codec.Unmarshal(raw, signed)
}

// ParseStatements reads the statements of an era, as in a stream and in a party's folder.
func ParseStatements(in io.Reader) (Statements, error) {
	r := codec.NewReader(in)
	s, err := readStatements(r)
	if err == nil {
		err = r.End()
	}
	return s, err
}

func readStatements(r *codec.Reader) (Statements, error) {
	n, err := r.ArrayUpTo(MaxStatements)
	s := Statements{}
	for ; err == nil && n > 0; n-- {
		one := &SignedStatement{}
		if err = r.ArrayOf(2); err == nil {
			one.Statement, err = r.Bytes(MaxStatement)
		}
		if err == nil {
			one.Signature, err = r.Exactly(ed25519.SignatureSize)
		}
		s = append(s, one)
	}
	return s, err
}

func (s *SignedStatement) parse(root task.ID) (*Statement, error) {
	one := &Statement{}
	if err := codec.Unmarshal(s.Statement, one); err != nil {
		return nil, err
	}
	switch {
	case one.Label != statementLabel || one.Version != task.Version:
		return nil, errors.New("not " + statementLabel + " of version " + strconv.Itoa(task.Version))
	case sized(one.Root) != root:
		return nil, invalid.Field("root", fmt.Sprintf("%x", one.Root), root.String()+", the first task of the stream")
	case len(one.Task) != 32 || len(one.Key) != 0 && len(one.Key) != 32:
		return nil, invalid.Field("statement", "a key or an id of another length", "32 bytes")
	}
	return one, nil
}

// sized returns b as 32 bytes; zeros if b has another length.
func sized(b []byte) (out task.ID) {
	if len(b) == len(out) {
		copy(out[:], b)
	}
	return out
}

// after returns the authority after a further statement. first: it is the first known statement of its era.
func (a Authority) after(s *Statement, signed *SignedStatement, trust Trust, first bool) (Authority, error) {
	signer := a.Key
	switch {
	case first && s.Era > 0 && s.Number == 0:
		if signer = trust.Recovery; signer == (task.SignKey{}) {
			return a, invalid.Field("era", strconv.FormatUint(s.Era, 10), "0, as no recovery key is known")
		}
	case s.Era != a.Era || s.Number != a.Number+1:
		return a, invalid.Field("number", fmt.Sprintf("%d of era %d", s.Number, s.Era),
			fmt.Sprintf("%d of era %d", a.Number+1, a.Era))
	case a.Stopped:
		return a, invalid.Field("statement", "one after the end of the stream", "only one by the recovery key")
	case s.Position < a.Position:
		return a, invalid.Field("position", strconv.FormatUint(s.Position, 10),
			"at least the position of the previous statement")
	}
	if !signing.Verify(signer[:], signing.Statement, signed.Statement, signed.Signature) {
		return a, signing.ErrSigner
	}
	return Authority{Era: s.Era, Number: s.Number, Position: s.Position, Task: task.ID(s.Task),
		Key:     task.SignKey(sized(s.Key)),
		Stopped: len(s.Key) == 0}, nil
}

// Check returns an error unless the statements allow a stream's task at this position, with this id and owner.
func (a Authority) Check(position uint64, id task.ID, owner task.SignKey) error {
	spoken := a.Era > 0 || a.Number > 0
	switch {
	case spoken && position == a.Position && id != a.Task:
		return invalid.Field("task", id.String(), a.Task.String()+", which the statements name")
	case spoken && position <= a.Position:
		return nil // the hash of the named task covers it
	case a.Stopped:
		return invalid.Field("stream.position", strconv.FormatUint(position, 10), "none: the stream was stopped")
	case owner != a.Key:
		return invalid.Field("owner", FormatKey(owner), FormatKey(a.Key)+", who signs the stream's tasks")
	}
	return nil
}

// ErrStatements is returned for statements that are neither those seen before nor their continuation.
var ErrStatements = errors.New("other statements about the stream than were seen")

// StatementHash is the SHA-256 of a statement.
type StatementHash [sha256.Size]byte

// SeenStatement names the newest statement seen, by era, number and SHA-256.
type SeenStatement struct {
	Era    uint64        `json:"era"`
	Number uint64        `json:"number"`
	Hash   StatementHash `json:"hash"` // Zeros: no statement was seen.
}

// Raise returns the newest of the statements s, for the caller to store in place of m. The caller has checked s. Raise
// returns [ErrStatements] unless s includes m.
func (m SeenStatement) Raise(s Statements, a Authority) (SeenStatement, error) {
	if m.Hash != (StatementHash{}) {
		at := int(m.Number)
		if a.Era == 0 {
			at-- // era 0 has no statement 0
		}
		switch {
		case a.Era < m.Era || a.Era == m.Era && a.Number < m.Number:
			return m, fmt.Errorf("%w: number %d of era %d, where number %d of era %d was seen", ErrStatements, a.Number,
				a.Era, m.Number, m.Era)
		case a.Era == m.Era && sha256.Sum256(s[at].Statement) != m.Hash:
			return m, fmt.Errorf("%w: another number %d of era %d", ErrStatements, m.Number, m.Era)
		}
	}
	if len(s) == 0 {
		return m, nil
	}
	return SeenStatement{a.Era, a.Number, sha256.Sum256(s[len(s)-1].Statement)}, nil
}

// ParseRecovery parses a recovery key, "ed25519:…"; "" is none.
func ParseRecovery(text string) (key task.SignKey, err error) {
	if text == "" {
		return key, nil
	}
	return ParseKey("recovery", text)
}
