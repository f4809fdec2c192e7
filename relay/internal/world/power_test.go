package world_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/faultdisk"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/relay/internal/storage"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
)

// A killed process loses nothing that it wrote. A power cut loses unsynced writes, in any order and partially. So these
// worlds have disks that record every write and sync (see package faultdisk). Afterwards the test opens each party on
// what a power cut at a random step may leave. The party must open, and keep all commitments that it made before the
// cut.

// powerPlan returns how many worlds to play, and how many power cuts to try for each party of a world.
func powerPlan() (worlds, cuts int) {
	if stattest.Long {
		return 8, 60
	}
	return 1, 25
}

// TestWorldPowerCuts: after a power cut, a party must have kept all its commitments.
func TestWorldPowerCuts(t *testing.T) {
	worlds, cuts := powerPlan()
	for seed := range worlds {
		c := newPowerCuts(t, uint64(seed), faultdisk.Broken{})
		for _, name := range c.world.order {
			for range cuts {
				require.NoError(t, c.cut(t, name), name)
			}
		}
	}
}

// TestWorldPowerCutsFindLostSyncs: on disks that ignore syncs, every party must lose something. That proves that power
// cuts lose data and that the checks notice it.
func TestWorldPowerCutsFindLostSyncs(t *testing.T) {
	c := newPowerCuts(t, 0, faultdisk.Broken{LosesSyncs: true})
	for _, name := range c.world.order {
		var err error
		for cuts := 0; err == nil; cuts++ {
			require.Less(t, cuts, 100, name)
			err = c.cut(t, name)
		}
		t.Log(name, err)
	}
}

// powerCuts replays the disk writes of a finished world, and cuts the power at random moments between them.
type powerCuts struct {
	world *world
	rng   *rand.Rand
	base  string // a folder for what a cut leaves, with the task's bundle
}

func newPowerCuts(t *testing.T, seed uint64, broken faultdisk.Broken) *powerCuts {
	t.Helper()
	quiet := &bug{name: "none", tokens: true, quiet: true, disk: broken}
	c := &powerCuts{playRecorded(t, seed, quiet, true), rand.New(rand.NewPCG(seed, 7)), t.TempDir()}
	require.Empty(t, c.world.account.broken, "%s", c.world.report())
	bundle, err := os.ReadFile(filepath.Join(c.world.Dir, worldTask+".bundle"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(c.base, worldTask+".bundle"), bundle, 0o600))
	return c
}

// cut opens a party on what a power cut at a random step leaves. It returns an error if a commitment is broken.
func (c *powerCuts) cut(t *testing.T, name string) error {
	t.Helper()
	p := c.world.parties[name]
	step := 1 + c.rng.IntN(p.disk.Steps())
	folder := filepath.Join(c.base, name)
	require.NoError(t, os.RemoveAll(folder))
	require.NoError(t, p.disk.Cut(step, c.rng, folder))
	left := &party{world: c.world, name: name, folder: folder}
	left.offset = time.Until(p.disk.When(step)) // the recorded times are virtual
	check := map[string]func(*party, []commitment) error{"relay1": c.checkFirst, "relay2": c.checkRelay,
		"verifier": c.checkVerifier, "issuer": c.checkIssuer}[name]
	var commitments []commitment
	for _, what := range p.disk.Marked(step) {
		commitments = append(commitments, what.(commitment))
	}
	if err := check(left, commitments); err != nil {
		return fmt.Errorf("step %d of %d: %w", step, p.disk.Steps(), err)
	}
	return nil
}

func (c *powerCuts) openRelay(p *party) (*stored, error) {
	cfg, err := relay.LoadConfig(filepath.Join(p.folder, "relay.yaml"))
	if err != nil {
		return nil, err
	}
	cfg.Clock = p.Now
	var kept *store.Store
	cfg.Seam = &storage.Seam{Store: func(s *store.Store, _ *storage.Stores) { kept = s }}
	r, err := relay.New(cfg)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return storedOf(kept, c.world.Open.ID)
}

// checkFirst checks that the first relay still has, or has destroyed, all reports that it acknowledged.
func (c *powerCuts) checkFirst(p *party, commitments []commitment) error {
	stored, err := c.openRelay(p)
	if err != nil {
		return err
	}
	if err := checkHandedOut(stored, commitments); err != nil {
		return err
	}
	have, destroyed, err := c.reports(stored)
	if err != nil {
		return err
	}
	missing := map[uint64]uint64{}
	for _, s := range commitments {
		if s.acked != nil && !have[s.acked] {
			missing[s.acked.epoch]++
		}
	}
	for epoch, n := range missing {
		if n > destroyed[epoch] {
			return fmt.Errorf("%d acknowledged reports of epoch %d are missing, %d were destroyed", n, epoch,
				destroyed[epoch])
		}
	}
	return nil
}

// reports returns the reports that the first relay has, or had until the next hop confirmed them. It also returns how
// many reports of each epoch were destroyed.
func (c *powerCuts) reports(stored *stored) (have map[*sent]bool, destroyed map[uint64]uint64, err error) {
	have, destroyed = map[*sent]bool{}, map[uint64]uint64{}
	known := c.world.account.slots[0]
	for _, slots := range stored.Slots {
		for _, slot := range slots {
			have[known[sha256.Sum256(slot)]] = true
		}
	}
	for _, b := range stored.Batches {
		if b.Bytes == nil { // deleted after its confirmation
			for slot, manifest := range c.world.account.out[0] {
				if manifest == sha256.Sum256(b.Manifest) {
					have[known[slot]] = true
				}
			}
			m := c.world.account.signed[batchAt{0, b.Epoch, b.Seq}]
			if m != nil && m.Destroyed() {
				destroyed[b.Epoch] += m.Submissions
			}
			continue
		}
		batch, err := onion.ParseBatch(b.Bytes)
		if err != nil {
			return nil, nil, err
		}
		m, err := batch.Header()
		if err != nil {
			return nil, nil, err
		}
		if m.Destroyed() {
			destroyed[b.Epoch] += m.Submissions
		}
		for _, slot := range slices.Concat(batch.Ciphertexts...) {
			have[known[sha256.Sum256(slot)]] = true
		}
	}
	return have, destroyed, nil
}

// checkHandedOut checks that the stored batches and ends are those that were handed out.
func checkHandedOut(stored *stored, commitments []commitment) error {
	manifests := map[[2]uint64][sha256.Size]byte{}
	for _, b := range stored.Batches {
		manifests[[2]uint64{b.Epoch, b.Seq}] = sha256.Sum256(b.Manifest)
	}
	for _, s := range commitments {
		switch {
		case s.handedOut == nil:
		case s.end && sha256.Sum256(stored.Ends[s.handedOut.epoch]) != s.hash:
			return fmt.Errorf("the end of epoch %d, which was handed out, is missing", s.handedOut.epoch)
		case !s.end && manifests[[2]uint64{s.handedOut.epoch, s.handedOut.seq}] != s.hash:
			return fmt.Errorf("batch %d of epoch %d, which was handed out, is missing", s.handedOut.seq, s.handedOut.epoch)
		}
	}
	return nil
}

// checkRelay checks that the second relay has all batches that it confirmed.
func (c *powerCuts) checkRelay(p *party, commitments []commitment) error {
	stored, err := c.openRelay(p)
	if err != nil {
		return err
	}
	have := map[batchAt]bool{}
	for _, b := range stored.Batches {
		have[batchAt{0, b.Epoch, b.Seq}] = true
	}
	for _, s := range commitments {
		if s.confirms != nil && !have[*s.confirms] {
			return fmt.Errorf("batch %d of epoch %d, which was confirmed, is missing", s.confirms.seq, s.confirms.epoch)
		}
	}
	return checkHandedOut(stored, commitments)
}

// checkVerifier checks that the verifier has all batches that it confirmed.
func (c *powerCuts) checkVerifier(p *party, commitments []commitment) error {
	run, err := beginVerifier(p, nil)
	if err != nil {
		return err
	}
	defer run.(*pulling).Close()
	for _, s := range commitments {
		if s.confirms == nil {
			continue
		}
		name := fmt.Sprintf("%06d-%06d.batch", s.confirms.epoch, s.confirms.seq)
		raw, err := os.ReadFile(filepath.Join(p.folder, "data", name))
		if err != nil {
			return err
		}
		b, err := onion.ParseBatch(raw)
		if err != nil {
			return err
		}
		if sha256.Sum256(b.Manifest) != c.world.account.manifests[*s.confirms] {
			return fmt.Errorf("%s is another batch", name)
		}
	}
	return nil
}

// handled passes requests to a handler, as a proxy in front of it does for a client.
type handled struct {
	http.Handler
	client string
}

func (h handled) Do(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	in := req.Clone(req.Context())
	if in.Body == nil {
		in.Body = io.NopCloser(bytes.NewReader(nil))
	}
	in.RemoteAddr, in.RequestURI = "127.0.0.1:1", ""
	in.Header.Set("X-Forwarded-For", h.client)
	h.ServeHTTP(w, in)
	return w.Result(), nil
}

// checkIssuer checks that the issuer refuses a second token to the last three clients that got one.
func (c *powerCuts) checkIssuer(p *party, commitments []commitment) error {
	i, err := issuer.New(p.issuerConfig())
	if err != nil {
		return err
	}
	defer i.Close()
	last := commitments[max(len(commitments)-3, 0):]
	for _, s := range last {
		client, err := shufflerclient.New(c.world.Open, shufflerclient.Options{MaxEpsilon: 1000, MaxDelta: 1,
			HTTP: handled{i.Handler(), s.acked.client}})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // the issuer may doubt the time
		_, err = client.Token(ctx, s.acked.epoch)
		cancel()
		var p *problem.Problem
		if !errors.As(err, &p) || p.Name != problem.Limit && p.Name != problem.EpochClosed {
			return fmt.Errorf("client %s, who has a token of epoch %d, asks for another: %v", s.acked.client,
				s.acked.epoch,
				err)
		}
	}
	return nil
}
