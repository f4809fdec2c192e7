package report_test

import "github.com/doona-dp/doona/internal/testing/relaytest"

// Short names of helpers in package relaytest.
const batchSize = relaytest.BatchSize

var (
	newCascade    = relaytest.NewMeanCascade
	newVerifier   = relaytest.NewVerifier
	get           = relaytest.Get
	slots         = relaytest.Slots
	slotsOf       = relaytest.SlotsOf
	chain         = relaytest.Chain
	everyProtocol = relaytest.EveryProtocol
	oneRelay      = relaytest.OneRelay
	wholeBatch    = relaytest.WholeBatch
)
