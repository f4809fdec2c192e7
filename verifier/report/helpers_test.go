package report_test

import "github.com/doona-dp/doona/internal/testing/verifiertest"

// What these tests begin with.
const batchSize = verifiertest.BatchSize

var (
	newCascade    = verifiertest.NewCascade
	newVerifier   = verifiertest.New
	get           = verifiertest.Get
	slots         = verifiertest.Slots
	slotsOf       = verifiertest.SlotsOf
	chain         = verifiertest.Chain
	reportOf      = verifiertest.JSON
	everyProtocol = verifiertest.EveryProtocol
	oneRelay      = verifiertest.OneRelay
	wholeBatch    = verifiertest.WholeBatch
)
