package verifier_test

import "github.com/doona-dp/doona/internal/testing/relaytest"

// Short names of helpers in package relaytest.
const batchSize = relaytest.BatchSize

var (
	newCascade    = relaytest.NewMeanCascade
	newVerifier   = relaytest.NewVerifier
	submit        = relaytest.Submit
	get           = relaytest.Get
	slots         = relaytest.Slots
	slotsOf       = relaytest.SlotsOf
	chain         = relaytest.Chain
	reportOf      = relaytest.ReportJSON
	everyProtocol = relaytest.EveryProtocol
	bytesOf       = relaytest.Bytes
	newPair       = relaytest.NewPair
	content       = relaytest.Content
	requireReport = relaytest.RequireReport
)
