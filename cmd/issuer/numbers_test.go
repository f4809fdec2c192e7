package main

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/doona-dp/doona/internal/testing/clitest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/issuer"
)

// TestNumbers: the program refuses or answers tiny, huge and invalid numbers in time.
func TestNumbers(t *testing.T) {
	clitest.Numbers(t, root(), clitest.Examples{
		Setup: "issuer keygen --kind sign --out sign.key",
		Lines: []string{"issuer keygen --kind token --sign-key ../given/sign.key --epochs 1 --out t.keys"},
		Slow:  "--epochs 1 ", // The search for an RSA key takes a random time.
	})
}

// TestNumbersOfConfiguration: the same for the numbers of issuer.yaml.
func TestNumbersOfConfiguration(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.WithTokens})
	of := c.IssuerConfig()
	clitest.FileNumbers(t, clitest.Examples{
		Setup: fmt.Sprintf(`cat >issuer.yaml <<END
listen: "127.0.0.1:8085"
store: %q
clients: address
max_concurrent: 64
max_connections: 4096
skew: 5m
follow_interval: 1m
tasks:
  - file: %q
    owner: %q
    token_keys: %q
    quota: 2
END`, of.Store, of.Tasks[0].File, c.Owner, of.Tasks[0].TokenKeys),
		Lines: []string{"issuer check-config --config ../given/issuer.yaml"},
	}, "issuer.yaml", clitest.Keys(reflect.TypeFor[issuer.Config](), "yaml")...)
}
