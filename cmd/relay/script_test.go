package main

import (
	"testing"

	"github.com/doona-dp/doona/internal/testing/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, main, "relay") }

func TestScripts(t *testing.T) { clitest.Run(t, "doona") }
