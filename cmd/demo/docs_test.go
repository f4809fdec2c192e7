package main

import (
	"testing"

	"github.com/doona-dp/doona/internal/testing/doctest"
)

func TestDocumentedCommandsExist(t *testing.T) { doctest.Commands(t, root()) }
