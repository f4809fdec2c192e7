package splitmix

// For tests.
var (
	StatisticalDistance = statisticalDistance
	LogExcess           = logExcess
)
