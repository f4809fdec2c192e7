package splitmix

// Unexported functions that the tests of package splitmix_test call.
var (
	StatisticalDistance = statisticalDistance
	LogExcess           = logExcess
)
