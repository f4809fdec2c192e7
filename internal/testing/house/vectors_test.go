package house_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
	"github.com/doona-dp/doona/wire/token"
)

// vectorDir is the folder of the vectors, described in testdata/README.md.
var vectorDir = "testdata/v" + strconv.Itoa(task.Version)

// hexBytes is a byte string that JSON holds in hexadecimal.
type hexBytes []byte

func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

// readVectors reads a file of vectors into v. It fails if v's type lacks a key of the file.
func readVectors(t *testing.T, name string, v any) {
	t.Helper()
	f, err := os.Open(filepath.Join(vectorDir, name+".json"))
	require.NoError(t, err)
	defer f.Close()
	dec := json.NewDecoder(f)
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(v), name)
}

// TestVectorsAreGenerated: the generator still writes the committed vectors. It fails if someone edited a vector, or
// changed code in a way that changes one.
func TestVectorsAreGenerated(t *testing.T) {
	sources, err := filepath.Glob(filepath.Join(vectorDir, "*.go"))
	require.NoError(t, err)
	dir := t.TempDir()
	out, err := exec.Command("go", slices.Concat([]string{"run"}, sources, []string{"-out", dir})...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	written, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	kept, err := filepath.Glob(filepath.Join(vectorDir, "*.json"))
	require.NoError(t, err)
	require.Len(t, written, len(kept))
	for _, path := range kept {
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(dir, filepath.Base(path)))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), path)
	}
}

func parseTask(t *testing.T, canonical []byte) (*task.Task, task.ID) {
	t.Helper()
	parsed, err := task.Parse(canonical)
	require.NoError(t, err)
	return parsed, taskfile.ID(parsed)
}

func TestVectorsTask(t *testing.T) {
	var vectors []struct {
		Document      json.RawMessage
		Canonical, ID hexBytes
	}
	readVectors(t, "task", &vectors)
	for _, v := range vectors {
		fromText, draft, err := taskfile.ParseJSON(v.Document)
		require.NoError(t, err)
		require.False(t, draft)
		require.Equal(t, []byte(v.Canonical), fromText.Canonical())
		parsed, id := parseTask(t, v.Canonical)
		require.Equal(t, fromText, parsed)
		require.Equal(t, []byte(v.ID), id[:])
	}
}

// TestVectorsOrigin checks which origins a task may list and which Origin headers match them.
func TestVectorsOrigin(t *testing.T) {
	var v struct {
		Valid, Listed []string
		Invalid       []struct{ Origin, Description string }
		Answers       []struct {
			Origin  string
			Allowed bool
		}
	}
	readVectors(t, "origin", &v)
	var tasks []struct {
		Document      json.RawMessage
		Canonical, ID hexBytes
	}
	readVectors(t, "task", &tasks)
	s, _ := parseTask(t, tasks[0].Canonical)
	check := func(origins ...string) error {
		s.Clients.Origins = origins
		_, err := task.Parse(s.Canonical())
		return err
	}
	for _, origin := range v.Valid {
		require.NoError(t, check(origin))
	}
	for _, bad := range v.Invalid {
		var refused *invalid.FieldError
		require.ErrorAs(t, check(bad.Origin), &refused, "%q: %s", bad.Origin, bad.Description)
		require.Equal(t, "clients.origins", refused.Field)
	}
	require.NoError(t, check(v.Listed...))
	for _, answer := range v.Answers {
		require.Equal(t, answer.Allowed, s.Clients.Allows(answer.Origin), answer.Origin)
	}
	s.Clients.Origins = nil
	require.True(t, s.Clients.Allows("https://any.example"))
}

func TestVectorsSignature(t *testing.T) {
	var vectors []struct {
		Seed, Public, Body, Signed, Signature hexBytes
		Purpose                               signing.Purpose
	}
	readVectors(t, "signature", &vectors)
	require.Len(t, vectors, 13)
	for _, v := range vectors {
		require.True(t, signing.Verify([]byte(v.Public), v.Purpose, v.Body, v.Signature), v.Purpose)
		require.Equal(t, "doona-v"+strconv.Itoa(task.Version)+" "+string(v.Purpose)+"\x00"+string(v.Body),
			string(v.Signed))
	}
}

func TestVectorsKeyList(t *testing.T) {
	var vectors []struct {
		KEM                task.KEM
		Signer, Hash, List hexBytes
		Keys               []struct{ Private, Public, ID hexBytes }
		Blocks             []struct {
			First      uint64
			Keys, Path hexBytes
		}
	}
	readVectors(t, "keylist", &vectors)
	for _, v := range vectors {
		list, err := onion.ParseKeyList(v.List)
		require.NoError(t, err)
		named := &task.Task{KEM: v.KEM, Epochs: task.Epochs{Count: uint64(len(v.Keys))},
			Verifier: task.Party{SignKey: task.SignKey(v.Signer), KeyList: task.KeyListHash(v.Hash)}}
		keys, err := onion.PartyKeys(named, 0, list)
		require.NoError(t, err)
		for i, k := range v.Keys {
			private, err := onion.OwnPrivateKey(v.KEM, bytes.Clone(k.Private))
			require.NoError(t, err)
			require.Equal(t, onion.KeyID(k.ID), private.Public().ID())
			require.Equal(t, onion.KeyID(k.ID), keys[i].ID())
			public, err := onion.ParsePublicKey(v.KEM, k.Public)
			require.NoError(t, err)
			require.Equal(t, onion.KeyID(k.ID), public.ID())
		}
		require.Len(t, v.Blocks, (len(v.Keys)+onion.BlockEpochs-1)/onion.BlockEpochs)
		for _, b := range v.Blocks {
			block := list.Block(b.First)
			require.Equal(t, [2][]byte{b.Keys, b.Path}, [2][]byte{block.Keys, block.Path})
			got, err := onion.PartyKeys(named, 0, &onion.SignedKeyList{List: list.List, Signature: list.Signature,
				First: b.First, Keys: b.Keys, Path: b.Path})
			require.NoError(t, err)
			require.Equal(t, keys[b.First].ID(), got[b.First].ID())
		}
	}
}

func TestVectorsBlock(t *testing.T) {
	var v struct {
		Bundle hexBytes
		Owner  string
		Epoch  uint64
	}
	readVectors(t, "block", &v)
	owner, err := taskfile.ParseKey("owner", v.Owner)
	require.NoError(t, err)
	bundle, err := taskfile.ParseBundle(v.Bundle)
	require.NoError(t, err)
	open, err := bundle.OpenBlock(&owner)
	require.NoError(t, err)
	require.Equal(t, v.Epoch/onion.BlockEpochs*onion.BlockEpochs, open.KeyLists[0].First)
}

func TestVectorsBundle(t *testing.T) {
	var v struct {
		OwnerSeed, Task, ID, Bundle hexBytes
		Owner                       string
	}
	readVectors(t, "bundle", &v)
	owner, err := taskfile.ParseKey("owner", v.Owner)
	require.NoError(t, err)
	bundle, err := taskfile.ParseBundle(v.Bundle)
	require.NoError(t, err)
	open, err := bundle.Open(&owner)
	require.NoError(t, err)
	require.Equal(t, []byte(v.ID), open.ID[:])
	require.Equal(t, []byte(v.Task), open.Canonical())
}

// opener returns the opener of a hop with a serialized private key.
func opener(t *testing.T, canonical []byte, hop int, epoch uint64, private []byte) *onion.Opener {
	t.Helper()
	parsed, id := parseTask(t, canonical)
	key, err := onion.OwnPrivateKey(parsed.KEM, bytes.Clone(private))
	require.NoError(t, err)
	o, err := onion.NewOpener(parsed, id, hop, epoch, key)
	require.NoError(t, err)
	return o
}

func TestVectorsSlot(t *testing.T) {
	var vectors []struct {
		KEM                                                                                  string
		Epoch                                                                                uint64
		Hop, Lane, Kind                                                                      int
		Task, Private, Public, Info, AAD, EphemeralX25519, EphemeralMLKEM, Plaintext, Sealed hexBytes
	}
	readVectors(t, "slot", &vectors)
	require.Len(t, vectors, 3)
	for _, v := range vectors {
		tag, m, err := opener(t, v.Task, v.Hop, v.Epoch, v.Private).OpenMessage(v.Lane, v.Sealed)
		require.NoError(t, err, v.KEM)
		require.Equal(t, []byte(v.Plaintext[:16]), tag[:])
		require.Equal(t, task.Message{Body: v.Plaintext[17:]}, m)
	}
}

func TestVectorsSubmission(t *testing.T) {
	var v struct {
		Task, Body, Tag hexBytes
		Private         []hexBytes
		Epoch           uint64
		Lanes           [][]struct {
			RelayTag, VerifierTag, Message hexBytes
			Cover                          bool
		}
	}
	readVectors(t, "submission", &v)
	envelope, err := opener(t, v.Task, 0, v.Epoch, v.Private[0]).OpenEnvelope(v.Body)
	require.NoError(t, err)
	require.Equal(t, []byte(v.Tag), envelope.Tag[:])
	require.Len(t, envelope.Lanes, len(v.Lanes))
	relay, verifier := opener(t, v.Task, 1, v.Epoch, v.Private[1]), opener(t, v.Task, 2, v.Epoch, v.Private[2])
	require.Len(t, v.Body, relay.MaxBody())
	for lane, slots := range v.Lanes {
		require.Len(t, envelope.Lanes[lane], len(slots))
		for i, want := range slots {
			tag, next, err := relay.OpenSlot(lane, envelope.Lanes[lane][i])
			require.NoError(t, err)
			require.Equal(t, []byte(want.RelayTag), tag[:])
			tag, m, err := verifier.OpenMessage(lane, next)
			require.NoError(t, err)
			require.Equal(t, []byte(want.VerifierTag), tag[:])
			require.Equal(t, task.Message{Cover: want.Cover, Body: want.Message}, m)
		}
	}
}

func TestVectorsBatch(t *testing.T) {
	var vectors []struct {
		Task, CiphertextsHash, Manifest, Batch hexBytes
		Epoch, Seq, Submissions                uint64
		Hop                                    int
		Lanes                                  [][4]uint64
	}
	readVectors(t, "batch", &vectors)
	for _, v := range vectors {
		parsed, id := parseTask(t, v.Task)
		batch, err := onion.ParseBatch(v.Batch)
		require.NoError(t, err)
		require.Equal(t, []byte(v.Manifest), batch.Manifest)
		chain, err := batch.Check(parsed, onion.Context{TaskID: id, Epoch: v.Epoch, Hop: v.Hop}, v.Seq)
		require.NoError(t, err)
		last := chain[v.Hop]
		require.Equal(t, v.Submissions, last.Submissions)
		require.Equal(t, []byte(v.CiphertextsHash), last.Ciphertexts)
		for lane, n := range v.Lanes {
			require.Equal(t, onion.LaneCount{In: n[0], Added: n[1], Out: n[2], Dropped: n[3]}, last.Lanes[lane])
		}
	}
}

func TestVectorsChunks(t *testing.T) {
	var vectors []struct {
		Slots           []uint64
		CiphertextsHash hexBytes
	}
	readVectors(t, "chunks", &vectors)
	for _, v := range vectors {
		head, hashes := binary.BigEndian.AppendUint64(nil, onion.ChunkSlots), []byte{}
		for _, n := range v.Slots {
			head = binary.BigEndian.AppendUint64(head, n)
			for i := uint64(0); i < n; {
				h := sha256.New()
				for range min(n-i, onion.ChunkSlots) {
					h.Write(binary.BigEndian.AppendUint32(nil, uint32(i)))
					i++
				}
				hashes = h.Sum(hashes)
			}
		}
		want := sha256.Sum256(append(head, hashes...))
		require.Equal(t, want[:], []byte(v.CiphertextsHash), "%v", v.Slots)
	}
}

func TestVectorsEnd(t *testing.T) {
	var vectors []struct {
		Task, End, Nonce, Time      hexBytes
		Epoch, Batches, Submissions uint64
		Hop                         int
		Lanes                       [][4]uint64
		Unix                        uint64
	}
	readVectors(t, "end", &vectors)
	for _, v := range vectors {
		parsed, id := parseTask(t, v.Task)
		end, err := onion.ParseEnd(v.End)
		require.NoError(t, err)
		chain, err := end.Check(parsed, onion.Context{TaskID: id, Epoch: v.Epoch, Hop: v.Hop})
		require.NoError(t, err)
		last := chain[v.Hop]
		require.Equal(t, []uint64{v.Batches, v.Submissions}, []uint64{last.Batches, last.Submissions})
		for lane, n := range v.Lanes {
			require.Equal(t, onion.LaneCount{In: n[0], Added: n[1], Out: n[2], Dropped: n[3]}, last.Lanes[lane])
		}
		unix, err := signing.OpenTime(parsed, id, v.Hop, signing.Nonce(v.Nonce), v.Time)
		require.NoError(t, err)
		require.Equal(t, v.Unix, unix)
	}
}

func TestVectorsToken(t *testing.T) {
	var vectors []struct {
		Task, Private, Key, KeyID, Challenge, Request, Reply, Token hexBytes
		Epoch                                                       uint64
		Directory, Authorization, WWWAuthenticate                   string
	}
	readVectors(t, "token", &vectors)
	require.Len(t, vectors, 2)
	for _, v := range vectors {
		parsed, id := parseTask(t, v.Task)
		challenge := token.Challenge(parsed, id, v.Epoch)
		require.Equal(t, []byte(v.Challenge), challenge)
		private, err := x509.ParsePKCS1PrivateKey(v.Private)
		require.NoError(t, err)
		key, err := token.ParsePublicKey(v.Key)
		require.NoError(t, err)
		require.Equal(t, onion.KeyID(v.KeyID), key.ID())
		listed, err := token.ParseDirectory([]byte(v.Directory))
		require.NoError(t, err)
		require.Equal(t, key, listed[key.ID()])
		reply, err := token.Sign(private, key, v.Request)
		require.NoError(t, err)
		require.Equal(t, []byte(v.Reply), reply)
		require.NoError(t, token.Verify(key, sha256.Sum256(challenge), v.Token))
		got, err := token.ParseHeader(v.Authorization)
		require.NoError(t, err)
		require.Equal(t, []byte(v.Token), got)
		require.Equal(t, v.WWWAuthenticate, token.ChallengeHeader(challenge, key))
	}
	// The task of bundle.json names the keys in this file.
	var named struct {
		OwnerSeed, Task, ID, Bundle hexBytes
		Owner                       string
	}
	readVectors(t, "bundle", &named)
	bundle, err := taskfile.ParseBundle(named.Bundle)
	require.NoError(t, err)
	open, err := bundle.Open(nil)
	require.NoError(t, err)
	for epoch, v := range vectors {
		require.Equal(t, onion.KeyID(v.KeyID), open.TokenKeys[epoch])
	}
}

// fault is one file bad_*.json.
type fault struct {
	Kind, Expect, Description, Owner         string
	Document                                 string
	Task, Bundle, Private, Body, Slot, Batch hexBytes
	Before                                   hexBytes
	End                                      hexBytes
	Key, Token, Request, Message, Keys       hexBytes
	Value                                    []float64
	Epoch, Seq, Users                        uint64
	Hop, Lane, Clock                         int
	Lanes                                    [][]hexBytes
	statedStream
}

// statedStream is a stream of tasks and the statements about it.
type statedStream struct {
	Root, Recovery, Statements hexBytes
	Tasks                      []struct{ ID, Owner hexBytes }
}

func (s *statedStream) check(t *testing.T, owner []byte) (a taskfile.Authority, err error) {
	t.Helper()
	trust := taskfile.Trust{Root: task.ID(s.Root), Owner: task.SignKey(owner)}
	copy(trust.Recovery[:], s.Recovery)
	var all taskfile.Statements
	require.NoError(t, codec.Unmarshal(s.Statements, &all))
	if a, err = all.Authority(trust); err != nil {
		return a, err
	}
	for position, one := range s.Tasks {
		if err := a.Check(uint64(position), task.ID(one.ID), task.SignKey(one.Owner)); err != nil {
			return a, err
		}
	}
	if a.Position >= uint64(len(s.Tasks)) {
		err = errors.New("the statement is about a task that the stream does not have")
	}
	return a, err
}

func TestVectorsStatement(t *testing.T) {
	var vectors []struct {
		statedStream
		Owner, Key            hexBytes
		Era, Number, Position uint64
	}
	readVectors(t, "statement", &vectors)
	require.NotEmpty(t, vectors)
	for _, v := range vectors {
		a, err := v.check(t, v.Owner)
		require.NoError(t, err)
		require.Equal(t, []uint64{v.Era, v.Number, v.Position}, []uint64{a.Era, a.Number, a.Position})
		require.Equal(t, a.Stopped, len(v.Key) == 0)
		if !a.Stopped {
			require.Equal(t, []byte(v.Key), a.Key[:])
		}
	}
}

// TestVectorsRoll: a signed rotation replaces a party's key in one stream only.
func TestVectorsRoll(t *testing.T) {
	var vectors []struct{ Root, Old, New, Signature hexBytes }
	readVectors(t, "rotation", &vectors)
	require.NotEmpty(t, vectors)
	for _, v := range vectors {
		rotation := task.Rotation{Old: task.SignKey(v.Old), New: task.SignKey(v.New), Signature: [64]byte(v.Signature)}
		require.NoError(t, taskfile.CheckRotation(task.ID(v.Root), rotation))
		require.Error(t, taskfile.CheckRotation(task.ID(v.New), rotation))
	}
}

// TestVectorsBad: the code refuses every file bad_*.json for the reason that the file gives.
func TestVectorsBad(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(vectorDir, "bad_*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		t.Run(name, func(t *testing.T) {
			var f fault
			readVectors(t, name, &f)
			err := f.run(t)
			require.Error(t, err, f.Description)
			requireReason(t, f.Expect, err)
		})
	}
}

func (f *fault) run(t *testing.T) error {
	if err, ok := f.runProtocol(t); ok {
		return err
	}
	switch f.Kind {
	case "task":
		_, err := task.Parse(f.Task)
		return err
	case "successor": // the successor of a stream's first task, checked for a page that allows what the stream allows
		first, id := parseTask(t, f.Before)
		next, err := task.Parse(f.Task)
		require.NoError(t, err)
		return first.CheckSuccessor(first, id, next, first.Stream.Allow, nil)
	case "document":
		_, _, err := taskfile.ParseJSON([]byte(f.Document))
		return err
	case "bundle":
		owner, err := taskfile.ParseKey("owner", f.Owner)
		require.NoError(t, err)
		bundle, err := taskfile.ParseBundle(f.Bundle)
		if err != nil {
			return err
		}
		_, err = bundle.OpenBlock(&owner)
		return err
	case "set", "set_keys", "set_submission":
		return f.runSet(t)
	case "submission":
		_, err := opener(t, f.Task, f.Hop, f.Epoch, f.Private).OpenEnvelope(f.Body)
		return err
	case "slot":
		_, _, err := opener(t, f.Task, f.Hop, f.Epoch, f.Private).OpenMessage(f.Lane, f.Slot)
		return err
	case "batch":
		parsed, id := parseTask(t, f.Task)
		// Read the batch as the next hop does.
		r, err := onion.NewBatchReader(bytes.NewReader(f.Batch), onion.MaxManifest(parsed, f.Hop))
		if err == nil {
			_, err = r.Check(parsed, onion.Context{TaskID: id, Epoch: f.Epoch, Hop: f.Hop}, f.Seq)
		}
		if err == nil {
			_, err = r.Rest()
		}
		return err
	case "end":
		parsed, id := parseTask(t, f.Task)
		end, err := onion.ParseEnd(f.End)
		require.NoError(t, err)
		_, err = end.Check(parsed, onion.Context{TaskID: id, Epoch: f.Epoch, Hop: f.Hop})
		return err
	case "statements":
		owner, err := hex.DecodeString(f.Owner)
		require.NoError(t, err)
		_, err = f.check(t, owner)
		return err
	case "token":
		parsed, id := parseTask(t, f.Task)
		key, err := token.ParsePublicKey(f.Key)
		require.NoError(t, err)
		return token.Verify(key, sha256.Sum256(token.Challenge(parsed, id, f.Epoch)), f.Token)
	case "token_key":
		_, err := token.ParsePublicKey(f.Key)
		return err
	case "token_request":
		private, err := x509.ParsePKCS1PrivateKey(f.Private)
		require.NoError(t, err)
		key, err := token.NewPublicKey(&private.PublicKey)
		require.NoError(t, err)
		_, err = token.Sign(private, key, f.Request)
		return err
	}
	t.Fatalf("unknown kind %q", f.Kind)
	return nil
}

// requireReason requires that err is of the kind that a vector expects.
func requireReason(t *testing.T, expect string, err error) {
	t.Helper()
	var field *invalid.FieldError
	if name, ok := strings.CutPrefix(expect, "field:"); ok {
		require.True(t, errors.As(err, &field), "%v", err)
		require.Equal(t, name, field.Field)
		return
	}
	switch expect {
	case "signer":
		require.ErrorIs(t, err, signing.ErrSigner)
	case "open":
		require.ErrorIs(t, err, onion.ErrOpen)
	case "ciphertexts":
		require.ErrorIs(t, err, onion.ErrCiphertexts)
	case "statement":
	case "set":
		require.Regexp(t, "couldn't accept the set|another list of keys", err.Error())
	case "encoding":
		require.Regexp(t, "couldn't (parse|decode|read) |trailing", err.Error())
		require.NotErrorIs(t, err, onion.ErrCiphertexts)
	case "document":
		require.True(t, errors.As(err, &field) || strings.HasPrefix(err.Error(), "couldn't read the task"), "%v", err)
	case "owner":
		require.ErrorContains(t, err, "its owner is")
	case "keylist":
		require.Regexp(t, "key lists|accept (the )?keys", err.Error())
	case "token":
		require.ErrorIs(t, err, token.ErrInvalid)
	case "key":
		require.ErrorContains(t, err, "invalid token key")
	case "request":
		require.Regexp(t, "^invalid (token request|token type|truncated key id|blinded message)", err.Error())
	case "size":
		require.ErrorContains(t, err, "invalid submission of")
	case "message":
		requireMessageReason(t, err)
	case "content":
		require.Regexp(t, "^invalid (version|number of slots|slot|message|tag|envelope)", err.Error())
		require.NotErrorIs(t, err, onion.ErrOpen)
	case "manifest":
		require.Regexp(t, "couldn't accept (batch|the end)", err.Error())
		require.NotErrorIs(t, err, signing.ErrSigner)
		require.NotErrorIs(t, err, onion.ErrCiphertexts)
	default:
		t.Fatalf("unknown reason %q", expect)
	}
}
