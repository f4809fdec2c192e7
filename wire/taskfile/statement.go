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

// statementLabel is the first field of every statement.
const statementLabel = "doona-statement"

// Statement names the key that signs the tasks of a stream after some position, or ends the stream there. Statements
// are grouped in eras. A later era begins with statement 0, which the recovery key signs, and voids all statements of
// earlier eras. Era 0 has no statement 0: it begins with the owner's published key. Every other statement is signed by
// the key that the previous statement names. So a thief of an owner's key loses control as soon as the recovery key
// begins an era, whatever the thief has signed.
type Statement struct {
	Label    string
	Version  uint64
	Root     []byte // ID of the stream's first task.
	Era      uint64
	Number   uint64
	Position uint64 // Of the newest task. Who signed this and earlier tasks no longer matters.
	Task     []byte // ID of the newest task.
	Key      []byte // The key that signs later tasks and statements. Empty ends the stream: clients stop reporting.
}

// SignedStatement is a statement in its encoded form, with its signature: msgpack [statement, signature].
type SignedStatement struct {
	Statement []byte
	Signature []byte
}

// Trust is what a party knows about a stream in advance, from the text of a page or from its configuration.
type Trust struct {
	Root     task.ID
	Owner    task.SignKey
	Recovery task.SignKey // Zero: no recovery key, so only era 0 is accepted.
	Allow    []string     // What later tasks may change, if the first task also allows it.

	// Keys of relays that may replace another relay, if the first task allows it.
	Candidates []task.SignKey
}

// Authority says which key signs a stream's next task, after all statements. Without statements, it contains only the
// owner's key.
type Authority struct {
	Era, Number uint64
	Position    uint64 // The statements confirm the tasks up to this position, which is Task's.
	Task        task.ID
	Key         task.SignKey
	Stopped     bool
}

// NewStatement returns the statement that follows the authority a, about a stream whose newest task is last. signer
// must be a's key, or the recovery key, which begins a new era. key signs the later tasks; a zero key ends the stream.
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

// Statements are the statements of a stream's newest era, by number.
type Statements []*SignedStatement

// With adds a statement after the last one. If the new statement begins a later era, it replaces all others.
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

// Next returns the authority after one more statement. It returns an error if the statement does not follow a. It
// verifies at most one signature.
func (a Authority) Next(next *SignedStatement, trust Trust) (Authority, error) {
	one, err := next.parse(trust.Root)
	if err != nil {
		return a, err
	}
	return a.after(one, next, trust, one.Era > a.Era)
}

// Authority checks the statements and returns the authority after them. It does not check tasks; [Authority.Check]
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

// ParseStatement parses a signed statement, without checking its signature. The statement must be about the stream that
// begins with root.
func ParseStatement(raw []byte, root task.ID) (*Statement, error) {
	signed, err := ParseSignedStatement(raw)
	if err != nil {
		return nil, err
	}
	return signed.parse(root)
}

// ParseSignedStatement parses a signed statement from msgpack. It checks neither the statement nor the signature.
func ParseSignedStatement(raw []byte) (*SignedStatement, error) {
	if len(raw) > MaxStatement {
		return nil, fmt.Errorf("couldn't read the statement: %d bytes, at most %d", len(raw), MaxStatement)
	}
	signed := &SignedStatement{}
	return signed, codec.Unmarshal(raw, signed)
}

// ParseStatements parses the statements of an era, in the form in which a stream and a party's folder contain them.
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

// sized returns b as an array of 32 bytes, or zeros if b has another length.
func sized(b []byte) (out task.ID) {
	if len(b) == len(out) {
		copy(out[:], b)
	}
	return out
}

// after returns the authority after one more statement. first says that it is the first known statement of its era.
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

// Check returns an error unless the statements allow a task with this id and owner at this position of the stream.
func (a Authority) Check(position uint64, id task.ID, owner task.SignKey) error {
	spoken := a.Era > 0 || a.Number > 0
	switch {
	case spoken && position == a.Position && id != a.Task:
		return invalid.Field("task", id.String(), a.Task.String()+", which the statements name")
	case spoken && position <= a.Position:
		return nil // the named task's id covers all earlier tasks
	case a.Stopped:
		return invalid.Field("stream.position", strconv.FormatUint(position, 10), "none: the stream was stopped")
	case owner != a.Key:
		return invalid.Field("owner", FormatKey(owner), FormatKey(a.Key)+", who signs the stream's tasks")
	}
	return nil
}

// ErrStatements is the error for statements that contradict those seen before: they neither contain nor continue them.
var ErrStatements = errors.New("the statements about the stream contradict those seen before")

// StatementHash is the SHA-256 of an encoded statement.
type StatementHash [sha256.Size]byte

// SeenStatement identifies the newest statement that a party has seen, by era, number and SHA-256.
type SeenStatement struct {
	Era    uint64        `json:"era"`
	Number uint64        `json:"number"`
	Hash   StatementHash `json:"hash"` // Zeros: the party has seen no statement.
}

// Raise returns the newest of the statements s, which the caller stores in place of m. The caller has checked s, and a
// is the authority after s. Raise returns [ErrStatements] if s does not contain m and begins no later era.
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
			return m, fmt.Errorf("%w: number %d of era %d is another statement", ErrStatements, m.Number, m.Era)
		}
	}
	if len(s) == 0 {
		return m, nil
	}
	return SeenStatement{a.Era, a.Number, sha256.Sum256(s[len(s)-1].Statement)}, nil
}

// ParseRecovery parses a recovery key, "ed25519:…". It returns a zero key for "", which means none.
func ParseRecovery(text string) (key task.SignKey, err error) {
	if text == "" {
		return key, nil
	}
	return ParseKey("recovery", text)
}
