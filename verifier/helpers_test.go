package verifier_test

import "github.com/doona-dp/doona/internal/testing/verifiertest"

// What these tests begin with.
const batchSize = verifiertest.BatchSize

var (
	newCascade    = verifiertest.NewCascade
	newVerifier   = verifiertest.New
	submit        = verifiertest.Submit
	get           = verifiertest.Get
	slots         = verifiertest.Slots
	slotsOf       = verifiertest.SlotsOf
	chain         = verifiertest.Chain
	reportOf      = verifiertest.JSON
	everyProtocol = verifiertest.EveryProtocol
	bytesOf       = verifiertest.Bytes
	newPair       = verifiertest.NewPair
	content       = verifiertest.Content
	requireReport = verifiertest.RequireReport
)
