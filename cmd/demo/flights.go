package main

import (
	"bytes"
	_ "embed"
	"io"
)

// compressedFlights is the demo's default input: 200,000 US domestic flights. The columns are the arrival delay in
// minutes (negative: early), the distance in miles and the hour of scheduled departure.
//
// Source: US Bureau of Transportation Statistics, Airline On-Time Performance Data; public domain. The rows are
// shuffled with a fixed seed (flights_gen.go). About half the delays are negative.
//
//go:embed flights.csv.gz
var compressedFlights []byte

// flights returns the flights as gzip-compressed CSV with the columns delay_minutes, distance_miles, hour.
func flights() io.Reader { return bytes.NewReader(compressedFlights) }
