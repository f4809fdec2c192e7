//go:build ignore

// Gen makes the flights' table from one that is sorted by hour. It shuffles the rows with a fixed seed, so that the
// first N clients of a demo are a random sample of the day.
//
//	go run flights_gen.go < sorted.csv > flights.csv
package main

import (
	"bufio"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
)

func main() {
	in := bufio.NewScanner(os.Stdin)
	if !in.Scan() {
		log.Fatal("couldn't read a header from standard input")
	}
	fmt.Println(in.Text())
	var rows []string
	for in.Scan() {
		rows = append(rows, in.Text())
	}
	if err := in.Err(); err != nil {
		log.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(2026, 11))
	rng.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	out := bufio.NewWriter(os.Stdout)
	for _, row := range rows {
		fmt.Fprintln(out, row)
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}
