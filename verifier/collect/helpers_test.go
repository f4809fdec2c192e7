package collect_test

import "github.com/doona-dp/doona/internal/testing/relaytest"

// Short names of helpers in package relaytest.
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
