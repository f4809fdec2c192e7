package main

import (
	"testing"

	"github.com/doona-dp/doona/internal/clitest"
)

func TestDocumentedCommandsExist(t *testing.T) { clitest.Commands(t, root()) }
