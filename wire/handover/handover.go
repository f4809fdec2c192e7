// Package handover lets a hop pull sealed batches from its upstream relay. The hop pulls each batch by number. Once
// the batch is safely stored, the hop confirms it, so that the upstream relay may delete it. At the end of an epoch,
// the hop fetches the relay's signed end.
//
//	GET  {relay}/v1/tasks/{id}/epochs/{e}/batches/{seq}   over task ‖ epoch ‖ seq ‖ first byte ‖ before ‖ nonce
//	POST {relay}/v1/tasks/{id}/epochs/{e}/batches/{seq}/confirm   … task ‖ epoch ‖ seq ‖ SHA-256(manifest) ‖ nonce
//	GET  {relay}/v1/tasks/{id}/epochs/{e}/end                     … task ‖ epoch ‖ nonce
//	GET  {relay}/v1/updates/{key}/{key}                              … key of the relay ‖ key of the hop ‖ nonce
//	GET  {relay}/v1/tasks/{id}/time?nonce=…                       not signed
//
// The hop signs every request but the last with its Ed25519 key. The header Doona-Signature carries a fresh nonce and
// the signature; a relay accepts each nonce once. Every request may be repeated: a batch number always stands for the
// same bytes, and a second confirmation succeeds. Later relays and the verifier use this package.
package handover

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"net/http"
	"slices"
	"time"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Header is the request header with the nonce and the signature, as unpadded base64url.
const Header = "Doona-Signature"

// HistoryHeader is the request header with the [HistoryDigest] of a pull, as unpadded base64url. Without it, the hop
// claims nothing about earlier batches.
const HistoryHeader = "Doona-History"

// HistoryDigest tells the relay which batches a hop has received before the requested number. The hop takes the SHA-256
// of each manifest, from the previous number down to the lowest number of an unbroken run. The digest is the SHA-256 of
// these hashes. Zeros mean that the hop does not know the previous batch. A relay whose own manifests give another
// digest was rolled back.
//
// The previous manifest alone is not enough. A destroyed batch has no slots, so a relay that was rolled back signs the
// same manifest for it again, even if the relay has forgotten other earlier batches.
type HistoryDigest [sha256.Size]byte

// ManifestHashes holds the SHA-256 hashes of the manifests of consecutive batches, in ascending order of their numbers.
type ManifestHashes []hash

type hash [sha256.Size]byte

// HashManifests hashes manifests, which must be in ascending order of their numbers.
func HashManifests(manifests ...[]byte) (h ManifestHashes) {
	for _, m := range manifests {
		h = append(h, sha256.Sum256(m))
	}
	return h
}

// History returns the digest to send with a pull of the batch that follows h. It returns zeros if h is empty.
func (h ManifestHashes) History() (b HistoryDigest) {
	if len(h) == 0 {
		return b
	}
	sum := sha256.New()
	for _, one := range slices.Backward(h) {
		sum.Write(one[:])
	}
	return HistoryDigest(sum.Sum(nil))
}

// Matches reports whether b is the digest of all of h, or of its last few hashes: the asking hop may know fewer
// manifests.
func (h ManifestHashes) Matches(b HistoryDigest) bool {
	sum := sha256.New()
	for _, one := range slices.Backward(h) {
		sum.Write(one[:])
		if HistoryDigest(sum.Sum(nil)) == b {
			return true
		}
	}
	return false
}

// ParseHistory parses the value of [HistoryHeader]. It returns zeros for an empty value.
func ParseHistory(text string) (b HistoryDigest, err error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != 0 && len(raw) != len(b) {
		return b, errors.New("not 32 bytes as base64url")
	}
	copy(b[:], raw)
	return b, nil
}

// Answers that a relay may give to a pull instead of a batch; compare with errors.Is. Any other error is a network
// error or another [problem.Problem].
var (
	ErrNotSealed     error = problem.New(problem.NotSealed, "")    // The batch does not exist yet: ask again later.
	ErrEpochComplete error = problem.New(problem.Complete, "")     // The epoch is over and has no batch of this number.
	ErrConfirmed     error = problem.New(problem.Confirmed, "")    // The hop confirmed it; the relay deleted it.
	ErrUnauthorized  error = problem.New(problem.Unauthorized, "") // The task's next hop did not sign the request.
)

// Faults of a batch that anybody between the two hops can cause, so the relay may be innocent. Compare with errors.Is,
// and pull the batch again.
var (
	ErrStranger = errors.New("signed by a stranger")                      // The asked relay did not sign it.
	ErrOther    = errors.New("not the batch asked for")                   // For another task, epoch, hop or number.
	ErrAltered  = errors.New("ciphertexts are not those of the manifest") // Changed after the relay signed.
)

// Foreign returns which of ErrStranger, ErrOther and ErrAltered an error of [Requester.Pull] is, or nil for any other
// error. These faults do not prove that the relay misbehaved.
func Foreign(err error) error {
	for _, fault := range []error{ErrStranger, ErrOther, ErrAltered} {
		if errors.Is(err, fault) {
			return fault
		}
	}
	return nil
}

// InvalidBatchError is the error of a batch that contradicts itself, its chain of manifests or the task, although the
// relay signed it for this number. It is the relay's fault, and pulling the batch again does not help.
type InvalidBatchError struct {
	Signed *onion.SignedManifest
	Err    error
}

func (r *InvalidBatchError) Error() string { return r.Err.Error() }

func (r *InvalidBatchError) Unwrap() error { return r.Err }

// Requester sends the signed requests of one party: a hop that pulls batches, or a task owner. It is safe for
// concurrent use.
type Requester struct {
	key  ed25519.PrivateKey
	http *http.Client
}

// timeout is the time limit of one request, including a large batch on a slow connection. After a timeout, the
// Requester resumes the transfer where it stopped.
const timeout = 10 * time.Minute

// NewRequester returns a Requester that signs with the party's key. If transport is nil, it uses the default of
// [LoadTransport].
func NewRequester(key ed25519.PrivateKey, transport http.RoundTripper) *Requester {
	if transport == nil {
		transport, _ = LoadTransport("") // cannot fail without a file of certificates
	}
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Requester{key, &http.Client{Transport: transport, Timeout: timeout, CheckRedirect: refuse}}
}

// Request names the batch to pull and the relay to ask.
type Request struct {
	Open           *taskfile.Open
	From           int // Hop of the relay to ask.
	Epoch, Seq     uint64
	History        HistoryDigest
	RecordManifest ManifestRecorder
}

// ManifestRecorder durably records the manifest that the relay signed for a batch number. It returns an error if the
// hop must not read the batch. A number stands for one batch only, whatever the relay forgets or signs later. The
// Requester calls it before it reads the first slot and before it checks the manifest any further.
type ManifestRecorder func(*onion.SignedManifest) error

// Pull fetches a batch into memory as [Requester.PullOnce] does, but without recording its manifest.
func (c *Requester) Pull(ctx context.Context, open *taskfile.Open, from int, epoch, seq uint64) (*onion.Batch, error) {
	return c.PullOnce(ctx, Request{Open: open, From: from, Epoch: epoch, Seq: seq,
		RecordManifest: func(*onion.SignedManifest) error { return nil }})
}

// PullOnce fetches a whole batch into memory, with the checks of [Requester.PullEach].
func (c *Requester) PullOnce(ctx context.Context, r Request) (*onion.Batch, error) {
	lanes := make(onion.Lanes, r.Open.Slots.Lanes)
	for lane := range lanes {
		lanes[lane] = [][]byte{}
	}
	signed, err := c.PullEach(ctx, r, func(lane int, slots [][]byte) error {
		lanes[lane] = append(lanes[lane], slots...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &onion.Batch{Manifest: signed.Manifest, Signature: signed.Signature, Ciphertexts: lanes}, nil
}

// Each receives one chunk of a batch: up to [onion.ChunkSlots] slots of one lane. It may keep the slots. Until the last
// chunk has arrived, the batch may still turn out altered or truncated.
type Each func(lane int, slots [][]byte) error

// PullEach fetches a batch and checks it as it arrives: manifests and hashes before the first slot, each chunk before
// the next. It returns the signed manifest. Its errors are the variables and InvalidBatchError above, errors of
// RecordManifest and of each, and network errors.
func (c *Requester) PullEach(ctx context.Context, r Request, each Each) (*onion.SignedManifest, error) {
	return c.pull(ctx, r, each, io.Discard)
}

// PullInto is [Requester.PullEach], but writes the batch to out as it arrives, in the form that hops exchange. If
// PullInto returns no error, the batch in out is complete and authentic. An error of out ends the pull.
func (c *Requester) PullInto(ctx context.Context, r Request, out io.Writer) (*onion.SignedManifest, error) {
	return c.pull(ctx, r, func(int, [][]byte) error { return nil }, out)
}

func (c *Requester) pull(ctx context.Context, r Request, each Each, copied io.Writer) (*onion.SignedManifest, error) {
	open := r.Open
	layout, err := onion.NewLayout(open.Task)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	most := MaxBatch(open.Task, layout, r.From)
	body := &transfer{left: most, ask: func(at int64) (*http.Response, error) {
		header := http.Header{}
		header.Set(Header, Signed(c.key, signing.Pull, Body(open.ID, r.Epoch, r.Seq, uint64(at), r.History)))
		if r.History != (HistoryDigest{}) {
			header.Set(HistoryHeader, base64.RawURLEncoding.EncodeToString(r.History[:]))
		}
		if at > 0 {
			header.Set("Range", fmt.Sprintf("bytes=%d-", at))
		}
		return c.send(ctx, http.MethodGet, open.BatchURL(r.From, r.Epoch, r.Seq), header, nil)
	}}
	defer body.Close()
	signed, err := r.read(io.TeeReader(body, copied), each)
	if err != nil {
		return nil, fmt.Errorf("couldn't pull batch %d of epoch %d: %w", r.Seq, r.Epoch, err)
	}
	return signed, nil
}

func (r *Request) read(in io.Reader, each Each) (*onion.SignedManifest, error) {
	t, c := r.Open.Task, onion.Context{TaskID: r.Open.ID, Epoch: r.Epoch, Hop: r.From}
	b, err := onion.NewBatchReader(in, onion.MaxManifest(t, c.Hop))
	if err != nil {
		return nil, err
	}
	m, err := b.Signed().Open(t, c.Hop)
	switch {
	case errors.Is(err, signing.ErrSigner):
		return nil, ErrStranger
	case err != nil || string(m.TaskID) != string(c.TaskID[:]) || m.Epoch != c.Epoch || m.Hop != uint64(c.Hop) ||
		m.Seq != r.Seq:
		return nil, ErrOther
	}
	if err := r.RecordManifest(b.Signed()); err != nil {
		return nil, err
	}
	_, err = b.Check(t, c, r.Seq)
	final := err != nil
	if err == nil {
		err = b.Each(each)
		final = errors.Is(err, onion.ErrSlotSize)
	}
	switch {
	case final:
		return nil, &InvalidBatchError{b.Signed(), err}
	case errors.Is(err, onion.ErrCiphertexts):
		return nil, ErrAltered
	}
	return b.Signed(), err
}

// Limits against a slow relay. Another attempt follows only if the last one transferred at least progress bytes, and
// all attempts at a batch together take at most patience. Otherwise a relay that sends a few bytes at a time could
// delay the end of the epoch and so the erasure of its key.
const (
	progress = 64 << 10
	patience = time.Hour
)

// transfer reads a batch over several attempts. It resumes a broken transfer while each attempt makes progress. It can
// do so because a batch number always stands for the same bytes.
type transfer struct {
	ask  func(at int64) (*http.Response, error)
	body io.ReadCloser // answer of the current attempt; nil before the first
	at   int64         // bytes read so far
	from int64         // value of at when the current attempt began
	left int64         // how many more bytes the relay may send
}

func (t *transfer) Read(p []byte) (n int, err error) {
	if t.body == nil {
		if err := t.begin(); err != nil {
			return 0, err
		}
	}
	n, err = t.body.Read(p)
	t.at += int64(n)
	if t.left -= int64(n); t.left < 0 {
		return 0, errors.New("answer longer than this task's batches")
	}
	if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || t.at < t.from+progress {
		return n, err
	}
	t.Close()
	t.body = nil
	return n, nil // the next call of Read starts another attempt for the rest
}

// begin requests the missing bytes. If the relay ignores the Range header and sends all, begin skips the bytes that
// were already read.
func (t *transfer) begin() error {
	resp, err := t.ask(t.at)
	if err != nil {
		return err
	}
	t.body, t.from = resp.Body, t.at
	if t.at > 0 && resp.StatusCode != http.StatusPartialContent {
		_, err = io.CopyN(io.Discard, t.body, t.at)
	}
	return err
}

// Close ends the current attempt.
func (t *transfer) Close() {
	if t.body != nil {
		t.body.Close()
	}
}

// Confirm tells the relay at hop from that this party has stored the batch with this manifest. The relay may then
// delete the batch's ciphertexts.
func (c *Requester) Confirm(ctx context.Context, open *taskfile.Open, from int, epoch, seq uint64,
	manifest []byte) error {
	signature := Signed(c.key, signing.Confirm, ConfirmBody(open.ID, epoch, seq, manifest))
	resp, err := c.ask(ctx, http.MethodPost, open.ConfirmURL(from, epoch, seq), signature)
	if err != nil {
		return fmt.Errorf("couldn't confirm batch %d of epoch %d: %w", seq, epoch, err)
	}
	defer resp.Body.Close()
	if n, err := resp.Body.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		return fmt.Errorf("couldn't confirm batch %d of epoch %d: the answer has a body", seq, epoch)
	}
	return nil
}

// ask sends a request, signed unless signature is empty. It returns the answer if its status is 2xx; the caller closes
// the body.
func (c *Requester) ask(ctx context.Context, method, url, signature string) (*http.Response, error) {
	header := http.Header{}
	if signature != "" {
		header.Set(Header, signature)
	}
	return c.send(ctx, method, url, header, nil)
}

// send is [Requester.ask] with any header and an optional body.
func (c *Requester) send(ctx context.Context, method, url string, header http.Header, body io.Reader) (
	*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	req.Header = header
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, problem.Read(resp)
	}
	return resp, nil
}

// maxEnd is the largest size of the signed end of an epoch, in bytes: each hop up to the last relay adds its counts.
func maxEnd(t *task.Task) int64 { return int64(len(t.Relays)) * (512 + int64(t.Slots.Lanes)*(1+4*9)) }

// End fetches the signed end of an epoch from the relay at hop from, and checks it and the ends of all earlier hops in
// it; see [onion.SignedEnd.Check]. The last element of the chain is the end that this relay signed. [ErrNotSealed]
// means that the epoch may get further batches.
func (c *Requester) End(ctx context.Context, open *taskfile.Open, from int, epoch uint64) (
	*onion.SignedEnd, []onion.End, error) {
	fail := func(err error) (*onion.SignedEnd, []onion.End, error) {
		return nil, nil, fmt.Errorf("couldn't fetch the end of epoch %d: %w", epoch, err)
	}
	signature := Signed(c.key, signing.AskEnd, EndBody(open.ID, epoch))
	raw, err := c.small(ctx, open.EndURL(from, epoch), signature, maxEnd(open.Task))
	if err != nil {
		return fail(err)
	}
	end, err := onion.ParseEnd(raw)
	if err != nil {
		return fail(err)
	}
	chain, err := end.Check(open.Task, onion.Context{TaskID: open.ID, Epoch: epoch, Hop: from})
	if err != nil {
		return fail(err)
	}
	return end, chain, nil
}

// maxTime is the largest size of a signed time, in bytes.
const maxTime = 256

// Time asks the party at a hop for its time, signed for this request. The hop is a relay's, or the verifier's plus one
// for the issuer. Time returns Unix seconds.
func (c *Requester) Time(ctx context.Context, open *taskfile.Open, hop int) (uint64, error) {
	nonce := newNonce()
	raw, err := c.small(ctx, open.TimeURL(hop)+"?nonce="+base64.RawURLEncoding.EncodeToString(nonce[:]), "", maxTime)
	if err != nil {
		return 0, fmt.Errorf("couldn't ask hop %d for the time: %w", hop, err)
	}
	return signing.OpenTime(open.Task, open.ID, hop, nonce, raw)
}

// small fetches an answer of at most most bytes, and returns an error for a longer one.
func (c *Requester) small(ctx context.Context, url, signature string, most int64) ([]byte, error) {
	resp, err := c.ask(ctx, http.MethodGet, url, signature)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err == nil && int64(len(raw)) > most {
		err = fmt.Errorf("answer longer than %d bytes", most)
	}
	return raw, err
}

func newNonce() (nonce signing.Nonce) {
	rand.Read(nonce[:])
	return nonce
}

// Signed returns the value of [Header] for a request: a fresh nonce, and the signature over body and nonce.
func Signed(key ed25519.PrivateKey, purpose signing.Purpose, body []byte) string {
	nonce := newNonce()
	signature := signing.Sign(key, purpose, append(body, nonce[:]...))
	return base64.RawURLEncoding.EncodeToString(append(nonce[:], signature...))
}

// Verify checks the value of [Header] of a request and returns the nonce in it. ok is false unless key signed body and
// nonce.
func Verify(key task.SignKey, purpose signing.Purpose, body []byte, header string) (nonce signing.Nonce, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(header)
	if err != nil || len(raw) != len(nonce)+ed25519.SignatureSize {
		return nonce, false
	}
	copy(nonce[:], raw)
	return nonce, signing.Verify(key[:], purpose, append(body, nonce[:]...), raw[len(nonce):])
}

// Body returns what the hop signs for a pull, before the nonce: task id ‖ epoch ‖ seq ‖ offset of the first byte ‖
// history. The three numbers have 8 bytes each, big-endian.
func Body(id task.ID, epoch, seq, from uint64, history HistoryDigest) []byte {
	return append(binary.BigEndian.AppendUint64(batchBody(id, epoch, seq), from), history[:]...)
}

// ConfirmBody returns what the hop signs for a confirmation, before the nonce: task id ‖ epoch ‖ seq ‖ SHA-256 of the
// manifest.
func ConfirmBody(id task.ID, epoch, seq uint64, manifest []byte) []byte {
	of := hash(sha256.Sum256(manifest))
	return append(batchBody(id, epoch, seq), of[:]...)
}

// EndBody returns what the hop signs to request the end of an epoch, before the nonce: task id ‖ epoch.
func EndBody(id task.ID, epoch uint64) []byte { return binary.BigEndian.AppendUint64(id[:], epoch) }

// SuccessorBody returns what an owner signs to send the next task of a stream to a relay, before the nonce: the id of
// the stream's first task, root.
func SuccessorBody(root task.ID) []byte { return root[:] }

// NextKeysBody returns what an owner signs to request a relay's key list for the next task of a stream, before the
// nonce: id of the first task ‖ position ‖ number of epochs.
func NextKeysBody(root task.ID, position, count uint64) []byte {
	return batchBody(root, position, count)
}

func batchBody(id task.ID, epoch, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(EndBody(id, epoch), seq)
}

// maxBody is the largest submission that relays accept, in bytes: a relay holds one in memory for each report in
// flight. Batches have no such limit, because relays keep them on disk.
const maxBody = 32 << 20

// CheckServable returns an error for a task whose clients would send submissions above maxBody.
func CheckServable(t *task.Task) error {
	layout, err := onion.NewLayout(t)
	if err != nil {
		return err
	}
	if most := layout.MaxBody(); most > maxBody {
		return invalid.Field("slots", fmt.Sprintf("for submissions of %d bytes", most),
			fmt.Sprintf("at most %d bytes", maxBody))
	}
	return nil
}

// MaxBatch returns the largest number of bytes of a batch from the relay at hop. It counts all slots of Batch.Size
// clients, all dummies that the relays up to hop may add, the hashes and headers of the chunks, and one manifest per
// hop. It returns 2⁶³ − 1 if the sum overflows 63 bits.
func MaxBatch(t *task.Task, layout onion.Layout, hop int) int64 {
	const header = 5 // of a msgpack byte string or array, in bytes
	slots := onion.MaxLane(t, hop)
	size, perChunk := uint64(layout.SlotSize(hop+1)), uint64(sha256.Size+header)
	// lane cannot overflow: it is at most 2⁵⁵, since MaxLane is below 2⁴⁰ and a slot has less than 2¹⁴ bytes.
	lane := slots*size + (slots/onion.ChunkSlots+1)*perChunk
	over, lanes := bits.Mul64(t.Slots.Lanes, lane)
	all := lanes + uint64(onion.MaxManifest(t, hop))
	if over > 0 || lanes > math.MaxInt64 || all > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(all)
}
