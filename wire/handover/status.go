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

// UpstreamStatus lists the open epochs of all tasks that a relay shares with its next hop, so that one
// request replaces one per task:
//
//	GET {relay}/v1/updates/{key of the relay}/{key of the hop}     over both keys ‖ nonce
//
// It reveals only what pulls reveal, too. It is not signed: a false status can only delay batches, like a false answer
// "not sealed" to a pull.
type UpstreamStatus struct {
	Instance []byte      // 16 bytes that name the answering process: another process may have seen fewer batches.
	Epochs   []OpenEpoch // Open epochs without a state rollback. The hop must ask for any other epoch itself.

	tag string // entity tag (HTTP ETag) of the received bytes
}

// OpenEpoch is an epoch in which the relay may seal further batches.
type OpenEpoch struct {
	TaskID  []byte // 32 bytes.
	Epoch   uint64
	Batches uint64 // Number of sealed batches.
}

// StatusTag returns the entity tag (HTTP ETag) of a status in msgpack form.
func StatusTag(raw []byte) string {
	sum := sha256.Sum256(raw)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`
}

// UpdatesBody returns what a hop signs to request a relay's status, before the nonce: the relay's key ‖ the hop's key.
func UpdatesBody(relay, hop task.SignKey) []byte { return slices.Concat(relay[:], hop[:]) }

const statusTimeout = 30 * time.Second

// MaxOpenEpochs is the largest number of epochs that fit into a status.
const MaxOpenEpochs = (taskfile.MaxUpstreamStatus - 64) / (1 + 2 + 32 + 9 + 9)

// UpstreamStatus asks a relay for its status. before is the last status, or nil. If nothing has changed since,
// UpstreamStatus returns before itself.
func (c *Requester) UpstreamStatus(ctx context.Context, relay task.Party, before *UpstreamStatus) (
	*UpstreamStatus, error) {
	fail := func(err error) (*UpstreamStatus, error) {
		return nil, fmt.Errorf("couldn't get the updates of %s: %w", relay.URL, err)
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

// minOpenEpoch is the smallest number of bytes that an epoch takes in a status.
const minOpenEpoch = 1 + 2 + 32 + 1 + 1

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
		return nil, errors.Join(errors.New("the answer is not a list of open epochs"), err)
	}
	return n, nil
}
