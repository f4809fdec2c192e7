package handover_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
)

// cannedResponse is a transport that answers every request with the same response, and counts how many bytes of it are
// read.
type cannedResponse struct {
	status int
	header http.Header
	body   *bytes.Reader
}

func (a *cannedResponse) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(a.body), Request: req,
		ContentLength: -1}, nil
}

// FuzzAnswer answers a pull or a confirmation with an arbitrary response. The result must be an error, or a batch that
// encodes to the same bytes again and can be checked without a panic. The Requester must read no more than the task's
// largest batch, and must follow no redirect.
func FuzzAnswer(f *testing.F) {
	c := relaytest.New(f, relaytest.Options{Hops: 1})
	_, stranger, err := ed25519.GenerateKey(nil)
	require.NoError(f, err)
	layout, err := onion.NewLayout(c.Open.Task)
	require.NoError(f, err)
	most := int(handover.MaxBatch(c.Open.Task, layout, 0))
	slots := make([][]byte, 10)
	for i := range slots {
		slots[i] = make([]byte, layout.SlotSize(1))
	}
	b, err := onion.NewBatch(stranger, onion.BatchDraft{
		Context: onion.Context{TaskID: c.Open.ID}, Submissions: 10, In: []uint64{10},
	}, [][][]byte{slots})
	require.NoError(f, err)
	raw, err := b.Bytes()
	require.NoError(f, err)
	f.Add(200, "", "", raw)
	b, err = onion.NewBatch(c.SignKey(f, 0), onion.BatchDraft{
		Context: onion.Context{TaskID: c.Open.ID}, Submissions: 10, In: []uint64{10},
	}, [][][]byte{slots})
	require.NoError(f, err)
	signed, err := b.Bytes()
	require.NoError(f, err)
	f.Add(200, "", "", signed)
	m, err := b.Header()
	require.NoError(f, err)
	end, err := onion.NewEnd(c.SignKey(f, 0), c.Open.Task, onion.Context{TaskID: c.Open.ID}, []onion.Manifest{*m}, nil)
	require.NoError(f, err)
	ended, err := end.Bytes()
	require.NoError(f, err)
	f.Add(200, "", "", ended)
	f.Add(204, "", "", []byte{})
	f.Add(307, "http://127.0.0.1:1/", "", []byte{})
	f.Add(404, "", "1", []byte(`{"type":"urn:doona:error:not-sealed"}`))
	f.Add(410, "", "-1", []byte(`{"type":"urn:doona:error:epoch-complete"}`))
	f.Add(200, "", "", bytes.Repeat([]byte{0x94}, most+2))
	f.Fuzz(func(t *testing.T, status int, location, retry string, body []byte) {
		a := &cannedResponse{status, http.Header{"Location": {location}, "Retry-After": {retry}}, bytes.NewReader(body)}
		client := handover.NewRequester(stranger, a)
		b, err := client.Pull(t.Context(), c.Open, 0, 0, 0)
		require.LessOrEqual(t, len(body)-a.body.Len(), max(most, 4096)+1)
		if err == nil {
			require.Equal(t, 2, status/100)
			again, err := b.Bytes()
			require.NoError(t, err)
			require.Equal(t, body, again)
			require.Equal(t, signed, body, "the relay has signed none but this")
		} else {
			var p *problem.Problem
			require.False(t, errors.As(err, &p) && status/100 == 2)
		}
		a.body = bytes.NewReader(body)
		end, chain, err := client.End(t.Context(), c.Open, 0, 0)
		require.LessOrEqual(t, len(body)-a.body.Len(), 4096+1)
		if err == nil {
			again, err := end.Bytes()
			require.NoError(t, err)
			require.Equal(t, body, again)
			require.Equal(t, ended, body, "the relay has signed none but this")
			require.Len(t, chain, 1)
		}
		a.body = bytes.NewReader(body)
		err = client.Confirm(t.Context(), c.Open, 0, 0, 0, nil)
		require.Equal(t, status/100 == 2 && len(body) == 0, err == nil)
	})
}
