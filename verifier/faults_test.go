package verifier_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/collect"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
)

// planted has the files of two batches, one of which may be faulty. counts is how many of the two batches count.
type planted struct {
	files  map[string][]byte
	counts uint64
	names  []finding.Name
}

// faults makes the files of two successive batches with a fault.
type faults struct {
	cascade, other *relaytest.Cascade
}

func (f *faults) good(t *testing.T, seq uint64) *onion.Batch {
	t.Helper()
	return chain(t, f.cascade, seq, slots(t, f.cascade, batchSize))
}

// signedBy returns the batch that the last relay signs, given the batch of the first relay.
func (f *faults) signedBy(t *testing.T, source *onion.Batch, submissions, seq uint64, lanes [][]byte) *onion.Batch {
	t.Helper()
	at := onion.Context{TaskID: f.cascade.Open.ID, Hop: 1}
	b, err := onion.NewBatch(f.cascade.SignKey(t, 1), onion.BatchDraft{
		Context: at, Seq: seq, Submissions: submissions, In: []uint64{batchSize}, Source: source.Signed(),
	}, onion.Lanes{lanes})
	require.NoError(t, err)
	return b
}

// first returns a batch that the first relay signs, or a stranger if key is given.
func (f *faults) first(t *testing.T, seq uint64, key ...byte) *onion.Batch {
	t.Helper()
	sign := f.cascade.SignKey(t, 0)
	if key != nil {
		stranger, err := keyfile.NewSign(filepath.Join(t.TempDir(), "stranger.key"))
		require.NoError(t, err)
		sign = stranger
	}
	b, err := onion.NewBatch(sign, onion.BatchDraft{
		Context: onion.Context{TaskID: f.cascade.Open.ID},
		Seq:     seq, Submissions: batchSize, In: []uint64{batchSize},
	}, onion.Lanes{slots(t, f.cascade, batchSize)})
	require.NoError(t, err)
	return b
}

// replaced returns a batch whose first slot has another plaintext after its tag.
func (f *faults) replaced(t *testing.T, seq uint64, kind byte, body []byte) *onion.Batch {
	t.Helper()
	open := f.cascade.Open
	public := f.cascade.PublicKey(t, 2, 0)
	key, err := onion.ParsePublicKey(open.KEM, public)
	require.NoError(t, err)
	id := key.ID()
	info := append([]byte("doona-v1 onion"), open.ID[:]...)
	info = append(append(binary.BigEndian.AppendUint64(info, 0), 2), id[:]...)
	plain := append(make([]byte, onion.TagSize), kind)
	plain[0] = byte(seq) // a tag that no other slot has
	sealed, err := fixture.Seal(fixture.X25519, public, fixture.Ephemeral{X25519: bytes.Repeat([]byte{7}, 32)}, info,
		[]byte{0, 0, 0}, append(plain, body...))
	require.NoError(t, err)
	return chain(t, f.cascade, seq, slots(t, f.cascade, batchSize), func(next [][]byte) [][]byte {
		require.Len(t, sealed, len(next[0]))
		next[0] = sealed
		return next
	})
}

// plant makes the files of two batches: the first with a fault, the second without.
func (f *faults) plant(t *testing.T, name finding.Name, seq uint64) planted {
	t.Helper()
	good := f.good(t, seq)
	p := planted{files: map[string][]byte{"good": bytesOf(t, good), "next": bytesOf(t, f.good(t, seq+1))}, counts: 2,
		names: []finding.Name{name}}
	only := func(b *onion.Batch, counts uint64) {
		p.files["good"], p.counts = bytesOf(t, b), counts
	}
	add := func(raw []byte) { p.files["bad"] = raw }
	stranger, err := keyfile.NewSign(filepath.Join(t.TempDir(), "stranger.key"))
	require.NoError(t, err)
	body := make([]byte, f.cascade.Open.Slots.MessageBytes)
	switch name {
	case finding.Tampered:
		raw := bytes.Clone(p.files["good"])
		raw[len(raw)-1] ^= 1
		add(raw)
	case finding.Truncated:
		add(p.files["good"][:len(p.files["good"])-100])
	case finding.Foreign:
		add(bytesOf(t, chain(t, f.other, seq, slots(t, f.other, batchSize))))
	case finding.Duplicate:
		add(p.files["good"])
	case finding.Equivocation:
		add(bytesOf(t, f.good(t, seq)))
		p.counts = 1
	case finding.Gap:
		delete(p.files, "good")
		p.counts = 1
	case finding.Signature:
		add(bytesOf(t, &onion.Batch{Manifest: good.Manifest, Ciphertexts: good.Ciphertexts,
			Signature: signing.Sign(stranger, signing.Manifest, good.Manifest)}))
	case finding.Chain:
		only(f.signedBy(t, f.first(t, seq, 1), batchSize, seq, good.Ciphertexts[0]), 1)
	case finding.Counts:
		only(f.signedBy(t, f.first(t, seq), batchSize+1, seq, good.Ciphertexts[0]), 1)
	case finding.TooFew:
		only(chain(t, f.cascade, seq, slots(t, f.cascade, batchSize),
			func(next [][]byte) [][]byte { return relaytest.Spoil(next, 3) }), 1)
		p.names = append(p.names, finding.Unreadable)
	case finding.Malformed:
		only(f.replaced(t, seq, 2, body), 2)
	case finding.OutOfDomain:
		only(f.replaced(t, seq, 1, bytes.Repeat([]byte{255}, len(body))), 2)
	case finding.Repeated:
		only(chain(t, f.cascade, seq, slots(t, f.cascade, batchSize),
			func(next [][]byte) [][]byte { next[0] = next[1]; return next }), 2)
	default:
		t.Fatal(name)
	}
	return p
}

var everyFault = []finding.Name{
	finding.Tampered, finding.Truncated, finding.Foreign, finding.Duplicate,
	finding.Equivocation, finding.Gap, finding.Signature, finding.Chain,
	finding.Counts, finding.TooFew, finding.Malformed, finding.Repeated,
	finding.OutOfDomain,
}

// file is a file with its content.
type file struct {
	name string
	raw  []byte
}

func addAll(t *testing.T, v *verifier.Verifier, files []file) {
	t.Helper()
	for _, f := range files {
		require.NoError(t, v.AddFile(f.name, bytes.NewReader(f.raw)), f.name)
	}
}

// listed returns the files of all parts, with names that are sorted.
func listed(parts ...planted) (out []file) {
	for i, p := range parts {
		for _, name := range slices.Sorted(maps.Keys(p.files)) {
			out = append(out, file{fmt.Sprintf("%d-%s", i, name), p.files[name]})
		}
	}
	return out
}

func findingNames(findings []finding.Finding) (names []finding.Name) {
	for _, f := range findings {
		names = append(names, f.Name)
	}
	return names
}

// TestEveryFaultIsNamed: each fault must get its name, alone and together with each other fault. The good batches
// count, and the JSON does not depend on the order of the files. The long form tests each pair of faults in both
// orders, the short form in one.
func TestEveryFaultIsNamed(t *testing.T) {
	f := &faults{newCascade(t), newCascade(t)}
	start := planted{files: map[string][]byte{"good": bytesOf(t, f.good(t, 0))}, counts: 1}
	var low, high []planted
	for _, name := range everyFault {
		low, high = append(low, f.plant(t, name, 1)), append(high, f.plant(t, name, 3))
	}
	random, everything := rand.New(rand.NewPCG(1, 2)), stattest.Long
	for i, first := range everyFault {
		requireNamed(t, f.cascade, random, start, low[i])
		for j, second := range everyFault {
			if i != j && (everything || (i+j)%2 == 0 == (i < j)) {
				t.Run(fmt.Sprint(first, " and ", second), func(t *testing.T) {
					requireNamed(t, f.cascade, random, start, low[i], high[j])
				})
			}
		}
	}
}

// TestServeNamesWhatItsRelaySigned: a fault in a pulled batch, which the last relay signed, must get the same name as
// in a file, alone and together with another fault. The other batches count, also after a restart. The long form tests
// all pairs.
func TestServeNamesWhatItsRelaySigned(t *testing.T) {
	f := &faults{newCascade(t), newCascade(t)}
	rogue := f.cascade.StartRogue(t, 1)
	signed := []finding.Name{finding.Chain, finding.Counts, finding.TooFew,
		finding.Malformed, finding.Repeated, finding.OutOfDomain}
	rogue.Serve(t, 0, 0, f.good(t, 0))
	var low, high []planted
	for _, name := range signed {
		low, high = append(low, f.plant(t, name, 1)), append(high, f.plant(t, name, 3))
	}
	everything := stattest.Long
	for i := range signed {
		for j := range signed {
			if i == j || j == (i+1)%len(signed) || everything {
				requirePulled(t, f.cascade, rogue, low[i], high[j])
			}
		}
	}
}

// requirePulled pulls batches from number 1 on: for each fault a bad one and a good one.
func requirePulled(t *testing.T, c *relaytest.Cascade, rogue *relaytest.Rogue, parts ...planted) {
	t.Helper()
	batches, want := uint64(1), map[finding.Name]bool{}
	for i, p := range parts {
		for at, name := range []string{"good", "next"} {
			b, err := onion.ParseBatch(p.files[name])
			require.NoError(t, err)
			rogue.Serve(t, 0, uint64(1+2*i+at), b)
		}
		batches += p.counts
		for _, name := range p.names {
			want[name] = true
		}
	}
	dir, before := filepath.Join(t.TempDir(), "batches"), ""
	for range 2 {
		v := newVerifier(t, c)
		puller, err := collect.NewPuller(v, c.Verifier, dir, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		require.NoError(t, puller.Pull(t.Context()))
		r, err := v.Report()
		require.NoError(t, err)
		require.Equal(t, batches, r.Batches, want)
		require.Equal(t, slices.Sorted(maps.Keys(want)), findingNames(r.Findings))
		if got := content(t, v); before != "" {
			require.Equal(t, before, got)
		}
		before = content(t, v)
		require.NoError(t, puller.Close())
	}
}

func requireNamed(t *testing.T, c *relaytest.Cascade, random *rand.Rand, parts ...planted) {
	t.Helper()
	files := listed(parts...)
	var batches uint64
	want := map[finding.Name]bool{}
	for _, p := range parts {
		batches += p.counts
		for _, name := range p.names {
			want[name] = true
		}
	}
	var before []byte
	for range 2 {
		v := newVerifier(t, c)
		addAll(t, v, files)
		r, err := v.Report()
		require.NoError(t, err)
		require.Equal(t, batches, r.Batches)
		require.Equal(t, batches*batchSize, r.Users)
		require.Equal(t, slices.Sorted(maps.Keys(want)), findingNames(r.Findings))
		require.Equal(t, r.MessagesSent, r.CoverMessages+r.Verified+r.Rejected+r.Withheld)
		require.Error(t, finding.Faults(r.Findings))
		line, err := json.Marshal(r)
		require.NoError(t, err)
		if before != nil {
			require.Equal(t, string(before), string(line))
		}
		before = line
		random.Shuffle(len(files), func(a, b int) { files[a], files[b] = files[b], files[a] })
	}
}

// TestVerifyNamesWhatNeedsNoKey: a verifier without keys must have the same findings, except those about slots.
func TestVerifyNamesWhatNeedsNoKey(t *testing.T) {
	f := &faults{newCascade(t), newCascade(t)}
	start := planted{files: map[string][]byte{"good": bytesOf(t, f.good(t, 0))}}
	for _, name := range everyFault {
		v := verifier.NewChecker(f.cascade.Open)
		addAll(t, v, listed(start, f.plant(t, name, 1)))
		switch name {
		case finding.TooFew, finding.Malformed, finding.Repeated, finding.OutOfDomain:
			require.Empty(t, v.Findings())
		default:
			require.Equal(t, []finding.Name{name}, findingNames(v.Findings()))
		}
	}
}

// TestEvidenceOfEquivocation: anyone who has the task can check both manifests that the report shows as evidence.
func TestEvidenceOfEquivocation(t *testing.T) {
	f := &faults{newCascade(t), nil}
	v := newVerifier(t, f.cascade)
	two := [][]byte{bytesOf(t, f.good(t, 0)), bytesOf(t, f.good(t, 0))}
	two[1] = two[1][:len(two[1])-10] // a manifest without its batch is evidence, too
	for i, raw := range two {
		require.NoError(t, v.AddFile(fmt.Sprint(i), bytes.NewReader(raw)))
	}
	r, err := v.Report()
	require.NoError(t, err)
	require.Zero(t, r.Batches)
	require.Equal(t, []finding.Name{finding.Equivocation, finding.Truncated},
		findingNames(r.Findings))
	evidence := r.Findings[0].Evidence
	require.Len(t, evidence, 1)
	require.Len(t, evidence[0].Manifests, 2)
	require.NotEqual(t, evidence[0].Manifests[0], evidence[0].Manifests[1])
	for _, text := range evidence[0].Manifests {
		signed, err := onion.ParseSigned(unpadded(t, text))
		require.NoError(t, err)
		at := onion.Context{TaskID: f.cascade.Open.ID, Hop: 1}
		_, err = signed.Check(f.cascade.Open.Task, at, 0)
		require.NoError(t, err)
	}
}

// TestARemainderIsNoFault: if the first relay destroys an epoch's last batch as too small, this is no finding. If it
// destroys an earlier batch, or a later relay destroys one, it is.
func TestARemainderIsNoFault(t *testing.T) {
	f := &faults{newCascade(t), nil}
	v := newVerifier(t, f.cascade)
	require.NoError(t, v.Add(f.good(t, 0)))
	require.NoError(t, v.Add(f.cascade.Destroyed(t, 1, 3, 0)))
	r, err := v.Report()
	require.NoError(t, err)
	require.Empty(t, r.Findings)
	require.EqualValues(t, 3, r.Withheld)
	require.EqualValues(t, 3, r.ByHop[0].Destroyed)
	require.NoError(t, v.Add(f.good(t, 2)))
	requireReport(t, v, 2, finding.Destroyed)

	v = newVerifier(t, f.cascade)
	require.NoError(t, v.Add(f.cascade.Destroyed(t, 0, batchSize, 1)))
	requireReport(t, v, 0, finding.Destroyed)
}

// TestASignedEndShowsWhatIsMissing: a missing batch that a signed end among the files announces must be a finding.
func TestASignedEndShowsWhatIsMissing(t *testing.T) {
	f := &faults{newCascade(t), nil}
	good := f.good(t, 0)
	var manifests []onion.Manifest
	for _, b := range []*onion.Batch{good, f.good(t, 1)} {
		m, err := b.Header()
		require.NoError(t, err)
		manifests = append(manifests, *m)
	}
	end, err := onion.NewEnd(f.cascade.SignKey(t, 1), f.cascade.Open.Task,
		onion.Context{TaskID: f.cascade.Open.ID, Hop: 1}, manifests, nil)
	require.NoError(t, err)
	raw, err := end.Bytes()
	require.NoError(t, err)
	v := newVerifier(t, f.cascade)
	require.NoError(t, v.Add(good))
	requireReport(t, v, 1)
	require.NoError(t, v.AddFile("end", bytes.NewReader(raw)))
	requireReport(t, v, 1, finding.Gap)
	raw[len(raw)-1] ^= 1
	require.NoError(t, v.AddFile("end", bytes.NewReader(raw)))
	requireReport(t, v, 1, finding.Foreign, finding.Gap)
}

// TestWhateverIsInAFileHasAName: a file with a changed byte or a truncation must be a finding and no error of the
// verifier, and must not count.
func TestWhateverIsInAFileHasAName(t *testing.T) {
	f := &faults{newCascade(t), nil}
	raw := bytesOf(t, f.good(t, 0))
	random := rand.New(rand.NewPCG(3, 4))
	for i := range 400 {
		bad := bytes.Clone(raw)
		if i%4 == 0 {
			bad = bad[:random.IntN(len(bad))]
		} else {
			bad[random.IntN(len(bad))] ^= byte(1 + random.IntN(255))
		}
		v := verifier.NewChecker(f.cascade.Open)
		require.NoError(t, v.AddFile("bad", bytes.NewReader(bad)))
		require.Len(t, v.Findings(), 1)
		require.True(t, v.Findings()[0].Fault())
		require.False(t, v.Has(0, 0))
	}
}

// TestTagsOfBatchesThatDoNotCountBlockNothing: a message of a withheld or equivocated batch must count if it comes
// again.
func TestTagsOfBatchesThatDoNotCountBlockNothing(t *testing.T) {
	f := &faults{newCascade(t), nil}
	fresh := slots(t, f.cascade, batchSize)
	spoiled := func(next [][]byte) [][]byte { return relaytest.Spoil(next, 3) }
	v := newVerifier(t, f.cascade)
	require.NoError(t, v.Add(chain(t, f.cascade, 0, fresh, spoiled)))
	require.NoError(t, v.Add(chain(t, f.cascade, 1, fresh)))
	requireUsers(t, v, batchSize, finding.TooFew, finding.Unreadable)

	v = newVerifier(t, f.cascade)
	require.NoError(t, v.AddFile("one", bytes.NewReader(bytesOf(t, chain(t, f.cascade, 0, fresh)))))
	require.NoError(t, v.AddFile("two", bytes.NewReader(bytesOf(t, f.good(t, 0)))))
	require.NoError(t, v.AddFile("three", bytes.NewReader(bytesOf(t, chain(t, f.cascade, 1, fresh)))))
	requireUsers(t, v, batchSize, finding.Equivocation)
}

func requireUsers(t *testing.T, v *verifier.Verifier, users uint64, findings ...finding.Name) {
	t.Helper()
	r, err := v.Report()
	require.NoError(t, err)
	require.Equal(t, users, r.Users)
	require.Equal(t, users, r.Verified)
	require.Equal(t, findings, findingNames(r.Findings))
}

// TestDuplicatesAreDecidedByNumber: a message in two batches must count in the one with the lower number, whichever was
// added first.
func TestDuplicatesAreDecidedByNumber(t *testing.T) {
	f := &faults{newCascade(t), nil}
	shared := slots(t, f.cascade, 1)
	batches := []*onion.Batch{
		chain(t, f.cascade, 0, append(slots(t, f.cascade, batchSize-1), shared...)),
		chain(t, f.cascade, 1, append(slots(t, f.cascade, batchSize-1), shared...)),
	}
	var lines []string
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		v := newVerifier(t, f.cascade)
		for _, i := range order {
			require.NoError(t, v.Add(batches[i]))
			_, err := v.Report() // adds up the batches that were added so far
			require.NoError(t, err)
		}
		r, err := v.Report()
		require.NoError(t, err)
		require.Equal(t, []finding.Finding{{Name: finding.Repeated, Count: 1,
			Meaning: "slots that occurred before", Example: "epoch 0, batch 1"}}, r.Findings)
		line, err := json.Marshal(r)
		require.NoError(t, err)
		lines = append(lines, string(line))
	}
	require.Equal(t, lines[0], lines[1])
}

func unpadded(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(text)
	require.NoError(t, err)
	return raw
}

// TestASourceThatFailsAccusesNobody: an error of reading a file must not become a fault of the relay.
func TestASourceThatFailsAccusesNobody(t *testing.T) {
	f := &faults{newCascade(t), nil}
	raw := bytesOf(t, f.good(t, 0))
	for _, at := range []int{0, 100, len(raw) / 2, len(raw)} {
		v := newVerifier(t, f.cascade)
		in := io.MultiReader(bytes.NewReader(raw[:at]), iotest.ErrReader(errors.New("the store answered 503")))
		require.NoError(t, v.AddFile("gs://batches/0", in))
		findings := v.Findings()
		require.Len(t, findings, 1, "after %d bytes", at)
		require.Equal(t, finding.Unread, findings[0].Name, "after %d bytes", at)
	}
}
