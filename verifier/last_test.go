package verifier

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// TestBatchesAfterTheLastAreFound: if relays add noise, a batch with fewer than n clients, received or passed on, must
// be the last of its epoch. Each later batch must be a finding.
func TestBatchesAfterTheLastAreFound(t *testing.T) {
	noisy := &task.Task{Batch: task.Batch{Size: 10}, Noise: &task.Noise{}}
	noisy.Claim.Assumption = task.NoneHonest
	batch := func(submissions, dropped uint64) *batchVersions {
		const added = 5
		first := onion.Manifest{Submissions: submissions, Lanes: []onion.LaneCount{
			{In: submissions, Added: added, Out: submissions + added - dropped, Dropped: dropped}}}
		return &batchVersions{[]*signedVersion{{record: &Record{}, chain: []onion.Manifest{first}}}}
	}
	full, short, dropped := batch(10, 0), batch(9, 0), batch(12, 3)
	for _, c := range []struct {
		batches []*batchVersions
		found   uint64
		first   string
	}{
		{[]*batchVersions{full, full, short}, 0, ""},
		{[]*batchVersions{full, short, full, full}, 2, "epoch 3, batch 2"},
		{[]*batchVersions{dropped, full}, 1, "epoch 3, batch 1"},
		{[]*batchVersions{short, short}, 1, "epoch 3, batch 1"},
	} {
		e, f := &epoch{numbers: map[uint64]*batchVersions{}}, findings{}
		for seq, n := range c.batches {
			e.numbers[uint64(seq)] = n
		}
		e.findBatchFaults(3, noisy, f)
		if c.found == 0 {
			require.NotContains(t, f, finding.AfterLast)
			continue
		}
		require.Equal(t, c.found, f[finding.AfterLast].count)
		require.Equal(t, c.first, f[finding.AfterLast].first.Text)
	}
}
