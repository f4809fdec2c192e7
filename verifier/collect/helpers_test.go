package collect_test

import "github.com/doona-dp/doona/internal/testing/relaytest"

// What these tests begin with.
const batchSize = relaytest.BatchSize

var (
	newVerifier   = relaytest.NewVerifier
	slots         = relaytest.Slots
	slotsOf       = relaytest.SlotsOf
	bytesOf       = relaytest.Bytes
	newPair       = relaytest.NewPair
	content       = relaytest.Content
	requireReport = relaytest.RequireReport
)
