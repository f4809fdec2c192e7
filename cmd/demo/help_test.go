package main

import (
	"testing"

	"github.com/doona-dp/doona/internal/testing/clitest"
)

func TestHelp(t *testing.T) {
	const page = "serves the page until it is stopped"
	clitest.Help(t, root(), map[string]string{
		"make demo":                         page,
		`make demo ARGS="--task mean.json"`: page,
		`make demo ARGS="--query histogram --bins 12 --range -30,150 --epsilon 2"`: page,
	})
}
