package main

import (
	"reflect"
	"testing"

	"github.com/doona-dp/doona/internal/testing/clitest"
	"github.com/doona-dp/doona/relay"
)

// TestNumbers: the program refuses or answers tiny, huge and invalid numbers in time.
func TestNumbers(t *testing.T) {
	clitest.Numbers(t, root(), clitest.Examples{
		Setup: `relay keygen --kind sign --out sign.key
key() { relay keygen --kind sign --out $1 | sed -n 's/^public  //p'; }
printf 'sign_key: sign.key\nstore: sqlite:r.db\nsecret: r.secret\nlisten: 127.0.0.1:8081\n' >relay.yaml
relay invite --site a.example --owner $(key o) --relay https://r1.example,$(key r) --tasks 2 >invite`,
		Lines: []string{"relay keygen --kind hpke --sign-key ../given/sign.key --epochs 1 --out t.keys",
			"relay invite --site a.example --owner " + aKey + " --relay https://r1.example," + bKey + " --tasks 2",
			"relay join ../given/invite --config ../given/relay.yaml --url https://r2.example --tasks 2"},
		Answers: "not confirmed",
	})
}

// TestNumbersOfConfiguration: the same for the numbers of relay.yaml.
func TestNumbersOfConfiguration(t *testing.T) {
	clitest.FileNumbers(t, clitest.Examples{
		Setup: `relay keygen --kind sign --out sign.key
cat >relay.yaml <<END
listen: "127.0.0.1:8081"
sign_key: sign.key
store: "sqlite:relay.db"
secret: relay.secret
max_concurrent: 1024
max_memory: 256MiB
max_connections: 4096
group: 1024
pull_interval: 5s
skew: 5m
give_up: 168h
retention: 2160h
owners:
  - owner: "ed25519:TTxOS_eEGvRtmWv5W31BISEQJAaY_HE5TJodDBdPuok"
    folder: tasks
    tasks: 2
    reports_per_second: 50
    bytes: 2GiB
    dummies: 1000
END`,
		Lines: []string{"relay check-config --config ../given/relay.yaml"},
	}, "relay.yaml", clitest.Keys(reflect.TypeFor[relay.Config](), "yaml")...)
}
