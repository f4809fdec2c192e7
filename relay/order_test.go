package relay_test

import (
	"bytes"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/pgtest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// many is the number of reports in tests of order. Under a uniform permutation of 300 reports the rank correlation has
// mean 0 and standard deviation 1/√(n-1) = 0.058. The limit correlated, 0.35, is six of these: one false alarm in 5·10⁸
// runs.
const (
	many       = 300
	correlated = 0.35
)

// spearman returns the rank correlation between the values 0, 1, … and their positions: 1 if they are in order.
func spearman(values []uint64) float64 {
	n := float64(len(values))
	sum := 0.0
	for rank, v := range values {
		sum += math.Pow(float64(rank)-float64(v), 2)
	}
	return 1 - 6*sum/(n*(n*n-1))
}

// TestSpearman: the rank correlation must detect an order that was permuted badly or not at all.
func TestSpearman(t *testing.T) {
	values := span(0, many)
	require.EqualValues(t, 1, spearman(values))
	for i := 0; i+1 < many; i += 2 {
		values[i], values[i+1] = values[i+1], values[i]
	}
	require.Greater(t, spearman(values), correlated)
	slices.Reverse(values)
	require.Less(t, spearman(values), -correlated)
}

// eachEngine runs a test with an SQLite store and with a PostgreSQL store.
func eachEngine(t *testing.T, test func(t *testing.T, o relaytest.Options)) {
	t.Helper()
	for _, postgres := range []bool{false, true} {
		t.Run(map[bool]string{false: "sqlite", true: "postgres"}[postgres], func(t *testing.T) {
			test(t, relaytest.Options{Postgres: postgres})
		})
	}
}

// seized returns all bytes of a first relay's store, as an attacker who takes the disk would get them: the SQLite file
// and its logs, or the whole data folder of PostgreSQL.
func seized(t *testing.T, c *relaytest.Cascade, o relaytest.Options) (out [][]byte) {
	t.Helper()
	root := filepath.Join(c.Dir, "relay1")
	if o.Postgres {
		server, err := pgtest.Shared()
		require.NoError(t, err)
		root = server.Data
	}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		database, _ := filepath.Match("relay.db*", d.Name())
		if os.IsNotExist(err) || err == nil && (d.IsDir() || !o.Postgres && !database) {
			return nil
		}
		if err != nil {
			return err
		}
		raw, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil // the server has just removed it
		}
		out = append(out, raw)
		return err
	}))
	require.NotEmpty(t, out)
	return out
}

// offsets returns the offset of each needle's first occurrence on a disk, or -1. A needle has at least 8 bytes.
func offsets(disk, needles [][]byte) []int {
	out := make([]int, len(needles))
	byHead := map[[8]byte][]int{}
	var begins [1 << 16]bool // by first two bytes: rules out most offsets
	for i, needle := range needles {
		out[i] = -1
		head := [8]byte(needle)
		byHead[head] = append(byHead[head], i)
		begins[int(head[0])<<8|int(head[1])] = true
	}
	before := 0
	for _, file := range disk {
		for at := 0; at+8 <= len(file); at++ {
			if !begins[int(file[at])<<8|int(file[at+1])] {
				continue
			}
			for _, i := range byHead[[8]byte(file[at:])] {
				if out[i] < 0 && bytes.HasPrefix(file[at:], needles[i]) {
					out[i] = before + at
				}
			}
		}
		before += len(file)
	}
	return out
}

// parts returns 32 bytes of each slot: a whole slot may straddle two pages of the store.
func parts(slots [][]byte) (out [][]byte) {
	for _, slot := range slots {
		out = append(out, slot[8:40])
	}
	return out
}

// requireOrdered asserts that the slots are on the disk, roughly in the order of their arrival.
func requireOrdered(t *testing.T, disk [][]byte, slots [][]byte) {
	t.Helper()
	type found struct{ offset, rank int }
	var all []found
	for _, at := range offsets(disk, parts(slots)) {
		if at >= 0 {
			all = append(all, found{at, len(all)})
		}
	}
	require.Greater(t, len(all), len(slots)*9/10)
	slices.SortFunc(all, func(a, b found) int { return a.offset - b.offset })
	ranks := make([]uint64, len(all))
	for i, f := range all {
		ranks[i] = uint64(f.rank)
	}
	require.Greater(t, spearman(ranks), correlated)
}

// post posts the reports from to to-1 in turn; each has its number as its value. It returns their slots, and other
// bytes that must not be on a disk.
func post(t *testing.T, c *relaytest.Cascade, from, to int) (slots, secrets [][]byte) {
	t.Helper()
	for i := from; i < to; i++ {
		body := c.Seal(t, 0, uint64(i))
		envelope := openEnvelope(t, c, 0, body)
		address := relaytest.Network(i)
		slots = append(slots, envelope.Lanes[0]...)
		secrets = append(secrets, envelope.Tag[:], body[40:72], []byte(address))
		require.NoError(t, c.Post(t.Context(), 0, body, "198.51.100.1, "+address))
	}
	return slots, append(secrets, []byte("198.51.100"))
}

func requireAbsent(t *testing.T, disk, slots, secrets [][]byte) {
	t.Helper()
	for i, at := range offsets(disk, append(parts(slots), secrets...)) {
		require.Negative(t, at, "needle %d of %d slots and %d secrets is on the disk", i, len(slots), len(secrets))
	}
}

// TestSeizedDisk posts reports in turn and searches the store's disk. No slot, tag, envelope or address may be on the
// disk, whether the batch is open, sealed or confirmed. After sealing, the secret file must have no key for the rows of
// the reports; after the confirmation, none for the batch. The batch must not be in the order of arrival.
func TestSeizedDisk(t *testing.T) {
	eachEngine(t, func(t *testing.T, o relaytest.Options) {
		o.Task = func(t *task.Task) { t.Batch.Size = many }
		c := relaytest.New(t, o)
		stop := c.Start(t, 0)
		secret := c.Config(t, 0).Secret
		requireKeys := func(rows, batch bool) {
			t.Helper()
			hasRows, hasBatch, err := relay.Decryptable(secret, c.Open.ID, 0)
			require.NoError(t, err)
			require.Equal(t, []bool{rows, batch}, []bool{hasRows, hasBatch})
		}
		slots, secrets := post(t, c, 0, many-1)
		disk := seized(t, c, o)
		requireAbsent(t, disk, slots, secrets)
		require.Positive(t, offsets(disk, [][]byte{c.Open.ID[:]})[0], "the search finds bytes that are on the disk")
		requireKeys(true, true)

		lastSlot, lastSecrets := post(t, c, many-1, many)
		slots, secrets = append(slots, lastSlot...), append(secrets, lastSecrets...)
		requireSoon(t, func() bool {
			rows, _, err := relay.Decryptable(secret, c.Open.ID, 0)
			return err == nil &&
				!rows
		})
		requireKeys(false, true)
		requireAbsent(t, seized(t, c, o), slots, secrets)

		c.Start(t, 1)
		waitConfirmed(t, c, 0, 1)
		requireSoon(t, func() bool {
			_, batch, err := relay.Decryptable(secret, c.Open.ID, 0)
			return err == nil &&
				!batch
		})
		batch, _ := c.Pull(t, 0, 0)
		values := c.Values(t, 0, batch)[0]
		require.ElementsMatch(t, span(0, many), values)
		require.Less(t, math.Abs(spearman(values)), correlated)
		stop()
		requireAbsent(t, seized(t, c, o), slots, secrets)
	})
}

// TestSeizedDiskWithNoise: no slot of a batch with dummies may be on the disk, before or after the next hop has
// confirmed it. Afterwards the secret file must have no key for the batch.
func TestSeizedDiskWithNoise(t *testing.T) {
	eachEngine(t, func(t *testing.T, o relaytest.Options) {
		o.Task = noisy
		c := relaytest.New(t, o)
		c.Start(t, 0)
		clients, secrets := post(t, c, 0, 10)
		next := handover.NewRequester(c.SignKey(t, 1), nil)
		var batch *onion.Batch
		requireSoon(t, func() (accepted bool) {
			var err error
			batch, err = next.Pull(t.Context(), c.Open, 0, 0, 0)
			return err == nil
		})
		slots := batch.Ciphertexts[0]
		require.Len(t, slots, len(clients)+added)
		requireAbsent(t, seized(t, c, o), slots, secrets)
		require.NoError(t, next.Confirm(t.Context(), c.Open, 0, 0, 0, batch.Manifest))
		requireSoon(t, func() bool {
			_, has, err := relay.Decryptable(c.Config(t, 0).Secret, c.Open.ID, 0)
			return err == nil && !has
		})
		requireAbsent(t, seized(t, c, o), slots, secrets)
	})
}

// TestSeizedDiskUnencrypted makes the same search without encryption and must find all slots, in the order of arrival.
// It proves that TestSeizedDisk can fail.
func TestSeizedDiskUnencrypted(t *testing.T) {
	eachEngine(t, func(t *testing.T, o relaytest.Options) {
		o.Task = func(t *task.Task) { t.Batch.Size = many + 1 }
		c := relaytest.New(t, o)
		first, _ := c.StartRelay(t, 0)
		relay.Unencrypted(first, c.Open.ID)
		slots, _ := post(t, c, 0, many)
		requireOrdered(t, seized(t, c, o), slots)
	})
}

// TestSealedOrder: a first relay's batch must not be in the order of arrival.
func TestSealedOrder(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(t *task.Task) { t.Batch.Size = many }})
	c.StartAll(t)
	post(t, c, 0, many)
	batch, _ := c.Pull(t, 0, 0)
	values := c.Values(t, 0, batch)[0]
	require.ElementsMatch(t, span(0, many), values)
	require.Less(t, math.Abs(spearman(values)), correlated)
}

func requireSoon(t *testing.T, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, relaytest.Patience, 10*time.Millisecond)
}

func ask(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text)
}
