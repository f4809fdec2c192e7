package main

import (
	"bytes"
	_ "embed"
	"io"
)

// compressedFlights is the demo's default input: 200,000 US domestic flights with their arrival delay in minutes
// (negative: early), distance in miles and scheduled departure hour.
//
// Source: US Bureau of Transportation Statistics, Airline On-Time Performance Data; public domain. The rows are
// shuffled with a fixed seed (flights_gen.go). About half the delays are negative.
//
//go:embed flights.csv.gz
var compressedFlights []byte

// flights returns the gzip-compressed CSV: delay_minutes, distance_miles, hour.
func flights() io.Reader { return bytes.NewReader(compressedFlights) }
