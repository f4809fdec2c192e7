package token

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/taskfile"
)

// directory is the JSON form of an issuer directory ([RFC 9578] section 4).
type directory struct {
	RequestURI string         `json:"issuer-request-uri"`
	Keys       []directoryKey `json:"token-keys"`
}

type directoryKey struct {
	Type int    `json:"token-type"`
	Key  string `json:"token-key"` // padded base64url
}

// Directory returns the issuer directory that lists these keys. uri is the URL for token requests, relative to the
// directory's URL.
func Directory(uri string, keys ...*PublicKey) ([]byte, error) {
	d := directory{uri, []directoryKey{}}
	for _, k := range keys {
		d.Keys = append(d.Keys, directoryKey{tokenType, base64.URLEncoding.EncodeToString(k.spki)})
	}
	out, err := json.Marshal(&d)
	if err != nil {
		return nil, fmt.Errorf("couldn't encode the issuer directory: %w", err)
	}
	return out, nil
}

// ParseDirectory returns the keys of token type 2 in an issuer directory, by their ids.
func ParseDirectory(in []byte) (map[onion.KeyID]*PublicKey, error) {
	var d directory
	if err := json.Unmarshal(in, &d); err != nil {
		return nil, fmt.Errorf("couldn't read the issuer directory: %w", err)
	}
	out := map[onion.KeyID]*PublicKey{}
	for _, listed := range d.Keys {
		if listed.Type != tokenType {
			continue
		}
		spki, err := base64.URLEncoding.Strict().DecodeString(listed.Key)
		if err != nil {
			return nil, invalid.Field("token-key", fmt.Sprintf("of %d characters", len(listed.Key)), "padded base64url")
		}
		key, err := ParsePublicKey(spki)
		if err != nil {
			return nil, err
		}
		out[key.id] = key
	}
	return out, nil
}

// maxDirectory is the largest size of the directory of one epoch, in bytes.
const maxDirectory = 16 << 10

// HTTP sends requests, as an [http.Client] does.
type HTTP interface {
	Do(*http.Request) (*http.Response, error)
}

// FetchKey fetches the issuer's public key for an epoch. It returns [ErrKey] for any key except the one that the task
// names: with a key of its own, a client could be told apart from the others. If the issuer refuses, the error is a
// [*problem.Problem].
func FetchKey(ctx context.Context, client HTTP, open *taskfile.Open, epoch uint64) (*PublicKey, error) {
	if epoch >= uint64(len(open.TokenKeys)) {
		return nil, invalid.Field("epoch", fmt.Sprint(epoch),
			fmt.Sprintf("below %d, of a task with tokens", len(open.TokenKeys)))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, open.DirectoryURL(epoch), nil)
	if err != nil {
		return nil, fmt.Errorf("couldn't fetch the issuer's key: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("couldn't fetch the issuer's key: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, problem.Read(resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDirectory+1))
	if err != nil {
		return nil, fmt.Errorf("couldn't fetch the issuer's key: %w", err)
	}
	if len(body) > maxDirectory {
		return nil, fmt.Errorf("%w: a directory of more than 16 KiB", ErrKey)
	}
	keys, err := ParseDirectory(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	key := keys[open.TokenKeys[epoch]]
	if key == nil {
		return nil, fmt.Errorf("%w: the key of epoch %d is not in the task's key list", ErrKey, epoch)
	}
	return key, nil
}

// ErrKey is the error for an issuer's key that is not the one that the task names.
var ErrKey = errors.New("couldn't accept the issuer's key")
