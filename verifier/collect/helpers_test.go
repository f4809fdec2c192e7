package collect_test

import "github.com/doona-dp/doona/internal/testing/verifiertest"

// What these tests begin with.
const batchSize = verifiertest.BatchSize

var (
	newCascade    = verifiertest.NewCascade
	newVerifier   = verifiertest.New
	slots         = verifiertest.Slots
	slotsOf       = verifiertest.SlotsOf
	bytesOf       = verifiertest.Bytes
	newPair       = verifiertest.NewPair
	content       = verifiertest.Content
	requireReport = verifiertest.RequireReport
)
