package main

import (
	"testing"

	"github.com/doona-dp/doona/internal/testing/clitest"
)

// TestNumbers: the program refuses or answers tiny, huge and invalid numbers in time.
func TestNumbers(t *testing.T) {
	clitest.Numbers(t, root(), clitest.Examples{
		Setup: `printf '0.5\n0.25\n1\n0\n' >one.csv
printf '0.5,1\n0.25,0\n1,0\n0,0\n' >two.csv
printf '/a\n/a\n/b\n/a\n' >texts.txt
mkdir www && touch www/index.html`,
		Lines: []string{
			"demo --headless --query mean --input ../given/one.csv --range 0,1 --users 4 --batch 4 --epsilon 1 " +
				"--delta 1e-6 --honest 1 --hops 2",
			"demo --headless --query histogram --bins 2 --range 0,1 --input ../given/one.csv --users 4 --batch 4 " +
				"--noise relays --local-epsilon 20",
			"demo --headless --query vectormean --input ../given/two.csv --lanes 1 --users 4 --batch 4 --epsilon 8",
			"demo --headless --query strings --noise relays --length 2 --input ../given/texts.txt --users 4 --batch 4",
			"demo --listen 127.0.0.1:0 --www ../given/www --epoch 20 --seed 1 --query count --header no " +
				"--input ../given/one.csv --users 4 --batch 4 # until http://",
		},
	})
}
