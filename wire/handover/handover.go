// Package handover is how a hop takes sealed batches from the relay before it: it pulls them by
// number and, once they are safe, confirms them so that the relay may delete them. When the epoch is
// over, it asks for its signed end.
//
//	GET  {relay}/v1/tasks/{id}/epochs/{e}/batches/{seq}   over task ‖ epoch ‖ seq ‖ first byte ‖ before ‖ nonce
//	POST {relay}/v1/tasks/{id}/epochs/{e}/batches/{seq}/confirm   … task ‖ epoch ‖ seq ‖ SHA-256(manifest) ‖ nonce
//	GET  {relay}/v1/tasks/{id}/epochs/{e}/end                     … task ‖ epoch ‖ nonce
//	GET  {relay}/v1/news/{key}/{key}                              … key of the relay ‖ key of the hop ‖ nonce
//	GET  {relay}/v1/tasks/{id}/time?nonce=…                       not signed
//
// All but the last are signed with the hop's Ed25519 key, in the header Doona-Signature behind the
// nonce, which is fresh for every request: a relay takes each once. All may be repeated at will: a
// batch number stands for the same bytes for ever, and confirming twice is no error. Mixes and the
// verifier use this package.
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

// Header carries nonce and signature of a request, as unpadded base64url.
const Header = "Doona-Signature"

// HistoryHeader carries the [HistoryDigest] of a pull, as unpadded base64url. Without it nothing is said.
const HistoryHeader = "Doona-Before"

// HistoryDigest says which batches a hop has had before the number that it asks for: the SHA-256 of the SHA-256 of each
// manifest, of the number before first, then down to the first number that it knows without a gap. Zeros are for a
// hop that does not know the number before. A relay that has another batch of any of them was set back.
//
// Of the number before alone it would not do: a batch that was destroyed has no slots, so a relay makes the same
// manifest of the same source again, whatever it has forgotten of the numbers before that.
type HistoryDigest [sha256.Size]byte

// ManifestHashes is the SHA-256 of each manifest of some numbers without a gap, the lowest first.
type ManifestHashes []hash

// hash is a manifest's.
type hash [sha256.Size]byte

// HashManifests returns that of manifests, the lowest number's first.
func HashManifests(manifests ...[]byte) (h ManifestHashes) {
	for _, m := range manifests {
		h = append(h, sha256.Sum256(m))
	}
	return h
}

// History returns what says so of the number behind the last of these; zeros where there are none.
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

// Matches says whether b is of these, or of the last few of these: who asks may know fewer.
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

// ParseHistory reads the header's value.
func ParseHistory(text string) (b HistoryDigest, err error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != 0 && len(raw) != len(b) {
		return b, errors.New("not 32 bytes as base64url")
	}
	copy(b[:], raw)
	return b, nil
}

// What a relay may answer to a pull instead of a batch; compare with errors.Is. Other errors
// are of the network, or a [problem.Problem].
var (
	ErrNotSealed     error = problem.New(problem.NotSealed, "")    // Ask again later.
	ErrEpochComplete error = problem.New(problem.Complete, "")     // There is no such batch and no further one.
	ErrConfirmed     error = problem.New(problem.Confirmed, "")    // It was confirmed before and is gone.
	ErrUnauthorized  error = problem.New(problem.Unauthorized, "") // The signing key is not the task's next hop's.
)

// The faults of a batch that whoever is on the way can cause; compare with errors.Is. The batch is to
// be asked for again.
var (
	ErrStranger = errors.New("signed by a stranger")                      // Not by the relay asked.
	ErrOther    = errors.New("not the batch asked for")                   // Another task, epoch, hop or number.
	ErrAltered  = errors.New("ciphertexts are not those of the manifest") // Removed, added or changed after signing.
)

// Foreign returns which of the three above an error of [Client.Pull] is: the relay that was asked is not
// to blame. nil says that it is none.
func Foreign(err error) error {
	for _, fault := range []error{ErrStranger, ErrOther, ErrAltered} {
		if errors.Is(err, fault) {
			return fault
		}
	}
	return nil
}

// InvalidBatchError is the error of a batch that the relay asked has signed, for this number, and that
// contradicts itself, its chain or the task. That is the relay's fault, and final.
type InvalidBatchError struct {
	Signed *onion.SignedManifest
	Err    error
}

// Error says what is wrong.
func (r *InvalidBatchError) Error() string { return r.Err.Error() }

// Unwrap returns what is wrong.
func (r *InvalidBatchError) Unwrap() error { return r.Err }

// Client pulls for one party. It is safe for concurrent use.
type Client struct {
	key  ed25519.PrivateKey
	http *http.Client
}

// timeout bounds one request, large batches over slow lines included; a batch that takes longer is
// asked for from where the transfer broke off.
const timeout = 10 * time.Minute

// NewClient returns a client that signs with a hop's key. A nil transport stands for that of
// [LoadTransport] without a file.
func NewClient(key ed25519.PrivateKey, transport http.RoundTripper) *Client {
	if transport == nil {
		transport, _ = LoadTransport("") // reads nothing, so nothing fails
	}
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{key, &http.Client{Transport: transport, Timeout: timeout, CheckRedirect: refuse}}
}

// Request says which batch is pulled, of whom, and what is known of it.
type Request struct {
	Open           *taskfile.Open
	From           int // hop of the relay that is asked
	Epoch, Seq     uint64
	History        HistoryDigest
	RecordManifest ManifestRecorder
}

// ManifestRecorder keeps the manifest that the relay asked has signed for a number, durably, or says why the batch
// is not to be read: a number stands for one batch, whatever the relay forgets or signs later. It is asked
// before the first slot is looked at, and before the manifest is checked any further.
type ManifestRecorder func(*onion.SignedManifest) error

// Pull is [Client.PullOnce] without a witness: for who keeps nothing.
func (c *Client) Pull(ctx context.Context, open *taskfile.Open, from int, epoch, seq uint64) (*onion.Batch, error) {
	return c.PullOnce(ctx, Request{Open: open, From: from, Epoch: epoch, Seq: seq,
		RecordManifest: func(*onion.SignedManifest) error { return nil }})
}

// PullOnce fetches a batch into memory: see [Client.PullEach].
func (c *Client) PullOnce(ctx context.Context, r Request) (*onion.Batch, error) {
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

// Each takes a chunk of a batch: up to [onion.ChunkSlots] slots of a lane, which are the batch's, and Each's to keep.
// Until the last has come the batch may still turn out to be altered or cut short.
type Each func(lane int, slots [][]byte) error

// PullEach fetches a batch and checks it as it comes: manifests and hashes before the first slot, each chunk before
// the next. See the errors above; others are the witness's, of each, or of the network. It returns what was signed.
func (c *Client) PullEach(ctx context.Context, r Request, each Each) (*onion.SignedManifest, error) {
	return c.pull(ctx, r, each, io.Discard)
}

// PullInto is [Client.PullEach] that writes the batch, in the form between hops, as it comes. It is whole and the
// relay's where there is no error. One of out's ends the pull.
func (c *Client) PullInto(ctx context.Context, r Request, out io.Writer) (*onion.SignedManifest, error) {
	return c.pull(ctx, r, func(int, [][]byte) error { return nil }, out)
}

func (c *Client) pull(ctx context.Context, r Request, each Each, copied io.Writer) (*onion.SignedManifest, error) {
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

// read reads and checks the batch that was asked for.
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

// progress is what an attempt must bring for another to follow, and patience bounds all attempts at
// a batch: a relay that feeds it in drops would put off the end of the epoch, and of its key.
const (
	progress = 64 << 10
	patience = time.Hour
)

// transfer reads a batch. A transfer that breaks off is resumed where it did, as long as each attempt
// makes progress: a batch number stands for the same bytes for ever.
type transfer struct {
	ask  func(at int64) (*http.Response, error)
	body io.ReadCloser // of the attempt that runs; nil before the first
	at   int64         // bytes that were read
	from int64         // at when the attempt began
	left int64         // bytes that may still come
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
	return n, nil // what follows comes from the next attempt
}

// begin asks for what has not come yet. What a relay that knows no ranges sends again is skipped.
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

// Close ends the attempt that runs.
func (t *transfer) Close() {
	if t.body != nil {
		t.body.Close()
	}
}

// Confirm tells the relay at hop from that the batch with this manifest is safe here, so that it
// may delete the ciphertexts.
func (c *Client) Confirm(ctx context.Context, open *taskfile.Open, from int, epoch, seq uint64, manifest []byte) error {
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

// ask sends a request with a signature, unless that is "". The answer is a success, and its body the caller's to
// close.
func (c *Client) ask(ctx context.Context, method, url, signature string) (*http.Response, error) {
	header := http.Header{}
	if signature != "" {
		header.Set(Header, signature)
	}
	return c.send(ctx, method, url, header, nil)
}

// send is ask with any header and a body, or none.
func (c *Client) send(ctx context.Context, method, url string, header http.Header, body io.Reader) (
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

// maxEnd bounds the signed end of an epoch: a body of counts for every hop so far.
func maxEnd(t *task.Task) int64 { return int64(len(t.Relays)) * (512 + int64(t.Slots.Lanes)*(1+4*9)) }

// End fetches the end of an epoch from the relay at hop from and checks it with its chain, this
// relay's last: [onion.SignedEnd.Check]. [ErrNotSealed] says that the epoch may have further batches.
func (c *Client) End(ctx context.Context, open *taskfile.Open, from int, epoch uint64) (
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

// maxTime bounds a signed time.
const maxTime = 256

// Time asks the relay at hop, or the issuer at the hop after the verifier, for its clock, signed for
// this request. It returns Unix seconds.
func (c *Client) Time(ctx context.Context, open *taskfile.Open, hop int) (uint64, error) {
	nonce := newNonce()
	raw, err := c.small(ctx, open.TimeURL(hop)+"?nonce="+base64.RawURLEncoding.EncodeToString(nonce[:]), "", maxTime)
	if err != nil {
		return 0, fmt.Errorf("couldn't ask hop %d for the time: %w", hop, err)
	}
	return signing.OpenTime(open.Task, open.ID, hop, nonce, raw)
}

// small reads an answer of at most most bytes.
func (c *Client) small(ctx context.Context, url, signature string, most int64) ([]byte, error) {
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

// Signed returns the header of a request: a fresh nonce, and the signature of the body and it.
func Signed(key ed25519.PrivateKey, purpose signing.Purpose, body []byte) string {
	nonce := newNonce()
	signature := signing.Sign(key, purpose, append(body, nonce[:]...))
	return base64.RawURLEncoding.EncodeToString(append(nonce[:], signature...))
}

// Verify checks the header of a request: that the key signed the body and a nonce, which it returns.
func Verify(key task.SignKey, purpose signing.Purpose, body []byte, header string) (nonce signing.Nonce, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(header)
	if err != nil || len(raw) != len(nonce)+ed25519.SignatureSize {
		return nonce, false
	}
	copy(nonce[:], raw)
	return nonce, signing.Verify(key[:], purpose, append(body, nonce[:]...), raw[len(nonce):])
}

// Body returns what a pull signs, with a nonce behind it: task id ‖ epoch ‖ seq ‖ the first byte asked
// for, 8 bytes each, big-endian ‖ before.
func Body(id task.ID, epoch, seq, from uint64, history HistoryDigest) []byte {
	return append(binary.BigEndian.AppendUint64(batchBody(id, epoch, seq), from), history[:]...)
}

// ConfirmBody returns what a confirmation signs, with a nonce behind it: task id ‖ epoch ‖ seq ‖
// SHA-256 of the manifest.
func ConfirmBody(id task.ID, epoch, seq uint64, manifest []byte) []byte {
	of := hash(sha256.Sum256(manifest))
	return append(batchBody(id, epoch, seq), of[:]...)
}

// EndBody returns what a request for the end of an epoch signs, with a nonce behind it.
func EndBody(id task.ID, epoch uint64) []byte { return binary.BigEndian.AppendUint64(id[:], epoch) }

// SuccessorBody returns what an owner signs who hands over the next task of the stream with this first task,
// with a nonce behind it.
func SuccessorBody(root task.ID) []byte { return root[:] }

// NextKeysBody returns what an owner signs who asks for a list of keys for the next task of a stream, with a
// nonce behind it: id of the first task ‖ position ‖ number of epochs.
func NextKeysBody(root task.ID, position, count uint64) []byte {
	return batchBody(root, position, count)
}

func batchBody(id task.ID, epoch, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(EndBody(id, epoch), seq)
}

// maxBody is the size of submissions up to which relays serve tasks: one is held in memory once per report in flight.
// Batches have no limit but the disk.
const maxBody = 16 << 20

// CheckServable refuses a task whose submissions relays cannot hold.
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

// MaxBatch returns the most bytes a batch of the relay at hop takes: all slots of Batch.Size
// clients, what every relay so far may have added, the hashes and headers of their chunks, and a
// manifest for every hop so far. A batch that 63 bits do not count is not below any limit: then it is 2⁶³ − 1.
func MaxBatch(t *task.Task, layout onion.Layout, hop int) int64 {
	const header = 5 // of a msgpack binary or array
	slots := onion.MaxLane(t, hop)
	size, perChunk := uint64(layout.SlotSize(hop+1)), uint64(sha256.Size+header)
	// Below 2⁵⁴: MaxLane is below 2⁴⁰, and a slot below 2¹⁴ bytes.
	lane := slots*size + (slots/onion.ChunkSlots+1)*perChunk
	over, lanes := bits.Mul64(t.Slots.Lanes, lane)
	all := lanes + uint64(onion.MaxManifest(t, hop))
	if over > 0 || lanes > math.MaxInt64 || all > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(all)
}
