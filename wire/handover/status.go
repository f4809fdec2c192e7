package handover

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// UpstreamStatus is what a relay has of the tasks that it shares with a next hop, so that the hop need not ask for what is not
// there, task by task:
//
//	GET {relay}/v1/news/{key of the relay}/{key of the hop}     over both keys ‖ nonce
//
// It says nothing that the pulls would not, and it is not signed: who tells wrong news only has batches come later, and
// could as well answer that they are not sealed.
type UpstreamStatus struct {
	Instance []byte      // 16 bytes, of the process that answers: another one may know less of what has come.
	Epochs   []OpenEpoch // Those that go on, and nothing of which was set back. The hop asks for all others.

	tag string // of what was received
}

// OpenEpoch is an epoch of which more may come.
type OpenEpoch struct {
	TaskID  []byte // 32 bytes.
	Epoch   uint64
	Batches uint64 // How many are sealed.
}

// StatusTag returns the entity tag of news in their msgpack form.
func StatusTag(raw []byte) string {
	sum := sha256.Sum256(raw)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`
}

// UpdatesBody returns what a request for news signs, with a nonce behind it: the keys of the relay and of the hop.
func UpdatesBody(relay, hop task.SignKey) []byte { return slices.Concat(relay[:], hop[:]) }

const statusTimeout = 30 * time.Second

// MaxOpenEpochs is the most epochs that news list.
const MaxOpenEpochs = (taskfile.MaxUpstreamStatus - 64) / (1 + 2 + 32 + 9 + 9)

// UpstreamStatus asks a relay for its news. Where they are those of before, which may be nil, these are what it returns.
func (c *Client) UpstreamStatus(ctx context.Context, relay task.Party, before *UpstreamStatus) (*UpstreamStatus, error) {
	fail := func(err error) (*UpstreamStatus, error) {
		return nil, fmt.Errorf("couldn't get the news of %s: %w", relay.URL, err)
	}
	ctx, stop := context.WithTimeout(ctx, statusTimeout)
	defer stop()
	own := task.SignKey(c.key.Public().(ed25519.PublicKey))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, taskfile.UpdatesURL(relay, own), nil)
	if err != nil {
		return fail(err)
	}
	req.Header.Set(Header, Signed(c.key, signing.Updates, UpdatesBody(relay.SignKey, own)))
	if before != nil {
		req.Header.Set("If-None-Match", before.tag)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fail(err)
	}
	defer resp.Body.Close()
	switch {
	case before != nil && resp.StatusCode == http.StatusNotModified:
		return before, nil
	case resp.StatusCode != http.StatusOK:
		return fail(problem.Read(resp))
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, taskfile.MaxUpstreamStatus+1))
	if err != nil {
		return fail(err)
	}
	if len(raw) > taskfile.MaxUpstreamStatus {
		return fail(fmt.Errorf("an answer of over %d bytes", taskfile.MaxUpstreamStatus))
	}
	n, err := parseStatus(raw)
	if err != nil {
		return fail(err)
	}
	return n, nil
}

// minOpenEpoch is the fewest bytes of an epoch in news.
const minOpenEpoch = 1 + 2 + 32 + 1 + 1

// parseStatus reads news.
func parseStatus(raw []byte) (*UpstreamStatus, error) {
	v := codec.NewView(raw)
	v.ArrayOf(2)
	n := &UpstreamStatus{Instance: v.Bytes(), tag: StatusTag(raw)}
	n.Epochs = make([]OpenEpoch, v.ArrayUpTo(len(raw)/minOpenEpoch))
	short := len(n.Instance) != 16
	for i := range n.Epochs {
		v.ArrayOf(3)
		n.Epochs[i] = OpenEpoch{v.Bytes(), v.Uint(), v.Uint()}
		if short = short || len(n.Epochs[i].TaskID) != len(task.ID{}); short {
			break
		}
	}
	if err := v.End(); err != nil || short {
		return nil, errors.Join(errors.New("not of the form of news"), err)
	}
	return n, nil
}
