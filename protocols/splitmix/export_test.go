package splitmix

// For tests outside the package.
var (
	StatisticalDistance = statisticalDistance
	LogExcess           = logExcess
)
