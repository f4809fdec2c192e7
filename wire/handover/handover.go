// Package handover is how a hop takes sealed batches from the relay before it: it pulls them by
// number and, once they are safe, confirms them so that the relay may delete them.
//
//	GET  {relay}/v1/tasks/{id}/epochs/{e}/batches/{seq}           signed over task ‖ epoch ‖ seq
//	POST {relay}/v1/tasks/{id}/epochs/{e}/batches/{seq}/confirm   … ‖ SHA-256(manifest)
//
// Both are signed with the hop's Ed25519 key in the header Doona-Signature. Both may be repeated
// at will: a batch number stands for the same bytes for ever, and confirming twice is no error.
// Mixes and the verifier use this package.
package handover

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Header carries the signature of a pull or confirmation, as unpadded base64url.
const Header = "Doona-Signature"

// What a relay may answer to a pull instead of a batch; compare with errors.Is. Other errors
// are of the network, or a [problem.Problem].
var (
	ErrNotSealed     error = problem.New(problem.NotSealed, "")    // Ask again later.
	ErrEpochComplete error = problem.New(problem.Complete, "")     // There is no such batch and no further one.
	ErrConfirmed     error = problem.New(problem.Confirmed, "")    // It was confirmed before and is gone.
	ErrUnauthorized  error = problem.New(problem.Unauthorized, "") // The signing key is not the task's next hop's.
)

// The faults of a batch that whoever is on the way can cause; compare with errors.Is.
var (
	ErrStranger = errors.New("signed by a stranger")                      // Not by the relay asked.
	ErrOther    = errors.New("not the batch asked for")                   // Another task, epoch, hop or number.
	ErrAltered  = errors.New("ciphertexts are not those of the manifest") // Removed, added or changed after signing.
)

// Foreign returns one of the errors above where a pulled batch cannot be blamed on the relay at
// hop from. Such a batch is to be asked for again. nil says only that this relay has signed it,
// for this number, with these ciphertexts: [onion.Batch.Check] says whether it can be true.
func Foreign(open *taskfile.Open, from int, epoch, seq uint64, b *onion.Batch) error {
	m, err := b.Signed().Open(open.Task, from)
	switch {
	case errors.Is(err, onion.ErrSigner):
		return ErrStranger
	case err != nil || string(m.TaskID) != string(open.ID[:]) || m.Epoch != epoch || m.Hop != uint64(from) || m.Seq != seq:
		return ErrOther
	}
	context := onion.Context{TaskID: open.ID, Epoch: epoch, Hop: from}
	if _, err := b.Check(open.Task, context, seq); errors.Is(err, onion.ErrCiphertexts) {
		return ErrAltered
	}
	return nil
}

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

// Pull fetches batch seq of an epoch from the relay at hop from. The batch is parsed and not
// checked: [onion.Batch.Check]. See the errors above.
func (c *Client) Pull(ctx context.Context, open *taskfile.Open, from int, epoch, seq uint64) (*onion.Batch, error) {
	layout, err := onion.NewLayout(open.Task)
	if err != nil {
		return nil, err
	}
	body := Body(open.ID, epoch, seq)
	signature := onion.Sign(c.key, onion.SignPull, body)
	raw, err := c.fetch(ctx, open.BatchURL(from, epoch, seq), signature, MaxBatch(open.Task, layout, from))
	if err != nil {
		return nil, fmt.Errorf("couldn't pull batch %d of epoch %d: %w", seq, epoch, err)
	}
	return onion.ParseBatch(raw)
}

// progress is what an attempt must bring for another to follow, and patience bounds all attempts at
// a batch: a relay that feeds it in drops would put off the end of the epoch, and of its key.
const (
	progress = 64 << 10
	patience = time.Hour
)

// fetch reads a batch of at most most bytes. A transfer that breaks off is resumed where it did, as
// long as each attempt makes progress: a batch number stands for the same bytes for ever.
func (c *Client) fetch(ctx context.Context, url string, signature []byte, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var got bytes.Buffer
	for {
		before := int64(got.Len())
		resp, err := c.ask(ctx, http.MethodGet, url, signature, before)
		if err != nil {
			return nil, err
		}
		if before > 0 && resp.StatusCode != http.StatusPartialContent {
			got.Reset() // it starts afresh
		}
		_, err = got.ReadFrom(io.LimitReader(resp.Body, most+1-int64(got.Len())))
		resp.Body.Close()
		switch {
		case int64(got.Len()) > most:
			return nil, fmt.Errorf("answer longer than %d bytes, the most this task's batches take", most)
		case err == nil:
			return got.Bytes(), nil
		case ctx.Err() != nil || int64(got.Len()) < before+progress:
			return nil, err
		}
	}
}

// Confirm tells the relay at hop from that the batch with this manifest is safe here, so that it
// may delete the ciphertexts.
func (c *Client) Confirm(ctx context.Context, open *taskfile.Open, from int, epoch, seq uint64, manifest []byte) error {
	signature := onion.Sign(c.key, onion.SignConfirm, ConfirmBody(open.ID, epoch, seq, manifest))
	resp, err := c.ask(ctx, http.MethodPost, open.ConfirmURL(from, epoch, seq), signature, 0)
	if err != nil {
		return fmt.Errorf("couldn't confirm batch %d of epoch %d: %w", seq, epoch, err)
	}
	defer resp.Body.Close()
	if n, err := resp.Body.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		return fmt.Errorf("couldn't confirm batch %d of epoch %d: the answer has a body", seq, epoch)
	}
	return nil
}

// ask sends a signed request for what follows the first from bytes. The answer is a success, and its
// body the caller's to close.
func (c *Client) ask(ctx context.Context, method, url string, signature []byte, from int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(Header, base64.RawURLEncoding.EncodeToString(signature))
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
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

// Body returns what a pull signs: task id ‖ epoch ‖ seq, 8 bytes each, big-endian.
func Body(id task.ID, epoch, seq uint64) []byte {
	body := binary.BigEndian.AppendUint64(id[:], epoch)
	return binary.BigEndian.AppendUint64(body, seq)
}

// ConfirmBody returns what a confirmation signs: the body of the pull ‖ SHA-256 of the manifest.
func ConfirmBody(id task.ID, epoch, seq uint64, manifest []byte) []byte {
	hash := sha256.Sum256(manifest)
	return append(Body(id, epoch, seq), hash[:]...)
}

// MaxBatch returns the most bytes a batch of the relay at hop takes: all slots of Batch.Size
// clients with their headers, and a manifest for every hop so far.
func MaxBatch(t *task.Task, layout onion.Layout, hop int) int64 {
	const header = 5 // of a msgpack binary or array
	slots := int64(t.Batch.Size) * int64(t.Slots.Lanes) * int64(t.Slots.PerLane)
	manifest := 512 + int64(t.Slots.Lanes)*(1+3*9) // three counts of at most 9 bytes per lane
	return slots*int64(layout.SlotSize(hop+1)+header) + int64(t.Slots.Lanes)*header + int64(hop+1)*manifest
}
