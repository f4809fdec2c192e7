// Package flights holds the demo's default input: 200,000 US domestic flights with their arrival
// delay in minutes (negative: early), distance in miles and scheduled departure hour.
//
// Source: US Bureau of Transportation Statistics, Airline On-Time Performance Data; public domain.
// The rows have been shuffled with a fixed seed (gen.go); about half the delays are negative.
package flights

import (
	"bytes"
	_ "embed"
	"io"
)

//go:embed flights.csv.gz
var compressed []byte

// Open returns the gzip-compressed CSV: delay_minutes, distance_miles, hour.
func Open() io.Reader { return bytes.NewReader(compressed) }
