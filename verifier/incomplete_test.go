package verifier_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier/finding"
)

// TestABatchWithoutAllItsSharesIsWithheld: if one message of a splitmix client is unreadable, the sum of its batch can
// be any number. So the batch must be a finding and not count. The other batch counts.
func TestABatchWithoutAllItsSharesIsWithheld(t *testing.T) {
	c := newPair(t)
	v := newVerifier(t, c)
	require.NoError(t, v.Add(chain(t, c, 0, slots(t, c, 2))))
	flip := func(next [][]byte) [][]byte { return relaytest.Spoil(next, 1) }
	require.NoError(t, v.Add(chain(t, c, 1, slots(t, c, 2), flip)))
	r, err := v.Report()
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Batches)
	require.EqualValues(t, 2, r.Users)
	require.EqualValues(t, 2, r.Verified)
	require.EqualValues(t, 1, r.Rejected)
	require.EqualValues(t, 1, r.Withheld)
	require.Equal(t, r.MessagesSent, r.CoverMessages+r.Verified+r.Rejected+r.Withheld)
	require.Equal(t, finding.Incomplete, r.Findings[0].Name)
}
