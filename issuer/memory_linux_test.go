package issuer_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/secret"
	"github.com/doona-dp/doona/internal/testing/memscan"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/token"
)

// Environment variables of the separate process that runs the issuer.
const (
	envFolder = "DOONA_ISSUER_FOLDER"
	envOwner  = "DOONA_ISSUER_OWNER"
)

// TestAnErasedKeyIsNotInMemory: after the issuer stops issuing an epoch's tokens, its memory must hold no copy of the
// private exponent, nor of the derived key for the hashes. The issuer runs in its own process, because the process that
// made the keys has copies.
func TestAnErasedKeyIsNotInMemory(t *testing.T) {
	if folder := os.Getenv(envFolder); folder != "" {
		issueAndErase(t, folder, os.Getenv(envOwner))
		return
	}
	c := newCascade(t)
	c.StartFirst(t) // this relay also confirms the time
	c.Clock.Advance(relaytest.Epoch + 6*time.Minute)
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), envFolder+"="+c.Dir, envOwner+"="+c.Owner)
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
}

func issueAndErase(t *testing.T, folder, owner string) {
	file := filepath.Join(folder, "issuer", "task0.keys")
	keys := memscan.File(t, file)
	loaded, err := keyfile.LoadRSA(file)
	require.NoError(t, err)
	key, err := loaded.Key(0)
	require.NoError(t, err)
	pending, err := token.Blind(key.Public(), []byte("a challenge"))
	require.NoError(t, err)
	var counts, hashes []*memscan.Needle // of epochs 0 and 1
	for epoch := range uint64(2) {
		key, err := loaded.Key(epoch)
		require.NoError(t, err)
		require.True(t, key.Use(func(exponent []byte) {
			counts = append(counts, memscan.New(fmt.Sprintf("counts of epoch %d", epoch), issuer.CountsKey(exponent)))
			hashed := make([]byte, 0, sha256.Size)
			secret.Do(func() {
				h := sha256.New()
				h.Write(exponent)
				hashed = h.Sum(hashed)
				h.Reset()
			})
			hashes = append(hashes, memscan.New(fmt.Sprintf("hash of exponent %d", epoch), hashed))
		}))
	}
	for range 2 {
		_, err = key.Sign(pending.Request)
		require.NoError(t, err)
	}
	loaded.Close()
	_, err = key.Sign(pending.Request)
	require.ErrorIs(t, err, keyfile.ErrErased)

	clock := &relaytest.Clock{}
	clock.Advance(relaytest.Epoch + 6*time.Minute)
	cfg := issuer.Config{Store: "sqlite:" + filepath.Join(folder, "issuer", "issuer.db"), Clients: "address",
		Listen: "127.0.0.1:0", Clock: clock.Now, Tasks: []issuer.TaskConfig{{File: filepath.Join(folder, "task0.bundle"),
			Owner: owner, TokenKeys: file}}}
	i, err := issuer.New(cfg)
	require.NoError(t, err)
	memscan.RequireFound(t, keys[0], keys[1], counts[0], counts[1])
	hash := issuer.Hashes(i, 0)
	for range 3 {
		require.NoError(t, hash())
	}
	defer relaytest.Run(t, i.Run)()
	require.Eventually(t, func() bool {
		left, err := keyfile.LoadRSA(file)
		if err != nil {
			return false
		}
		defer left.Close()
		return !slices.Contains(left.Epochs(), 0)
	}, relaytest.Patience, 10*time.Millisecond)
	memscan.RequireGone(t, []*memscan.Needle{keys[0], counts[0], hashes[0], hashes[1]}, keys[1], counts[1])
}
