package server

import (
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/verifier"
)

// Config is what a verifier is told: the fields with yaml names make up verifier.yaml, in which unknown
// keys are errors and relative paths start at the file's own folder.
type Config struct {
	// Listen is the address of the pages, "host:port". They show estimates and nothing else, to whoever
	// reaches them. Default "127.0.0.1:8090", unless Listener is set.
	Listen string `yaml:"listen"`

	// Hosts are names by which the pages may be asked for, without port, besides IP addresses, localhost and a name in
	// Listen: such as the one that a proxy before it serves. A page of another site that has its own name resolve to
	// the address sends that name, and is refused. Default: none.
	Hosts []string `yaml:"hosts"`

	// Admin is the address of /healthz, /readyz, /metrics and /status, "host:port". Keep it private.
	// Default: none.
	Admin string `yaml:"admin"`

	// AdminHosts are names by which the admin address may be asked, without port, besides IP addresses and localhost:
	// such as the one that Prometheus scrapes. A page of another site that has its own name resolve to the address
	// sends that name, and is refused. Default: none.
	AdminHosts []string `yaml:"admin_hosts"`

	// SignKey is the file of the verifier's Ed25519 key (`verifier keygen --kind sign`). Required.
	SignKey string `yaml:"sign_key"`

	// OldSignKeys are files of keys that SignKey has replaced in streams (`doona task roll`): what was agreed on
	// with one is signed with it. Default: none.
	OldSignKeys []string `yaml:"old_sign_keys"`

	// Data is the folder for batches, created with mode 0700: each task has one of its own in it, named by
	// its id. One process at a time. Required.
	Data string `yaml:"data"`

	// Ledger is the folder of the ledgers of what was published, one for each stream or task, created with mode
	// 0700. Who publishes results of the same streams elsewhere too, as by `verifier analyze`, must name the same
	// one. Default: ledger in Data.
	Ledger string `yaml:"ledger"`

	// CA is a file of certificates (PEM) of authorities that this verifier trusts besides the system's.
	// Default: none.
	CA string `yaml:"ca"`

	// PullInterval is how often the last relay is asked for batches. Default 10s. Range 10ms to 1h.
	PullInterval time.Duration `yaml:"pull_interval"`

	// Late is how long after its end an epoch may lack its signed end before it counts as late. A chain of
	// relays needs some minutes. Default 1h. Range 1s to 8760h.
	Late time.Duration `yaml:"late"`

	// ShowUnusable shows the estimates of unusable reports too, and says so beside them. Default false.
	ShowUnusable bool `yaml:"show_unusable"`

	// Tasks lists what the verifier counts. Required.
	Tasks []TaskConfig `yaml:"tasks"`

	// Listener and AdminListener replace Listen and Admin in a program that embeds a verifier.
	Listener      net.Listener `yaml:"-"`
	AdminListener net.Listener `yaml:"-"`

	// Clock replaces time.Now in tests.
	Clock func() time.Time `yaml:"-"`

	// Log receives operational events. Default: none.
	Log *slog.Logger `yaml:"-"`
}

// TaskConfig names one task.
type TaskConfig struct {
	// File is the task's bundle (`doona task new`). Required.
	File string `yaml:"file"`

	// Owner is the key that must have signed it, "ed25519:…". Default: any, as the verifier is often the
	// owner's.
	Owner string `yaml:"owner"`

	// Recovery is a key, "ed25519:…", that may replace the owner's in a stream, or stop it. Default: none.
	Recovery string `yaml:"recovery"`

	// HPKEKeys is the file of the verifier's HPKE keys for this task (`verifier keygen --kind hpke`).
	// Required.
	HPKEKeys string `yaml:"hpke_keys"`

	// Successors is a folder for the tasks that follow this one, the first of a stream: the verifier finds them
	// at the first relay and writes each down, POSITION.bundle, for good. Make its keys for a task of N epochs in
	// it before the owner signs that (`verifier keygen --kind hpke --epochs N --out FOLDER/POSITION-N.keys`).
	// Default: the folder successors/ID in Data.
	Successors string `yaml:"successors"`

	// Root is the bundle of the first task of the stream, for a later task that is listed by itself. The ledger of a
	// stream is named by it, so it is needed unless the tasks before are listed too, or a ledger tells of them.
	// Default: none.
	Root string `yaml:"root"`

	// Begin begins the stream's ledger where there is none, for a later task whose stream's first task is not listed
	// here: it is your word that nothing of the stream was published. Else there must be one. Default false.
	Begin bool `yaml:"begin"`

	// TotalEpsilon and TotalDelta are a budget for all published epochs of the task's stream together, or of the
	// task: results beyond it are withheld. All entries of a stream must have the same. Both or none. Default: the
	// total that the task claims, if it is in no stream, and else none. Range of δ: above 0 and below 1.
	TotalEpsilon float64 `yaml:"total_epsilon"`
	TotalDelta   float64 `yaml:"total_delta"`
}

// budget returns the operator's budget, nil where none is given.
func (t *TaskConfig) budget() *verifier.Budget {
	if t.TotalEpsilon == 0 && t.TotalDelta == 0 {
		return nil
	}
	return &verifier.Budget{Epsilon: t.TotalEpsilon, Delta: t.TotalDelta}
}

// budgetText names the budget.
func (t *TaskConfig) budgetText() string {
	if t.budget() == nil {
		return "none"
	}
	return decimal.Format(t.TotalEpsilon, -1) + " at total_delta " + decimal.Format(t.TotalDelta, -1)
}

// DefaultListen is the address of the pages where none is given.
const DefaultListen = "127.0.0.1:8090"

// LoadConfig reads verifier.yaml. It neither opens the files that it names nor checks values: [New] does.
func LoadConfig(path string) (Config, error) {
	var c Config
	if err := service.ReadConfig(path, &c); err != nil {
		return c, err
	}
	files := []*string{&c.SignKey, &c.Data, &c.CA, &c.Ledger}
	for i := range c.OldSignKeys {
		files = append(files, &c.OldSignKeys[i])
	}
	for i := range c.Tasks {
		files = append(files, &c.Tasks[i].File, &c.Tasks[i].HPKEKeys, &c.Tasks[i].Successors,
			&c.Tasks[i].Root)
	}
	service.Resolve(filepath.Dir(path), files...)
	return c, nil
}

// validate fills in defaults and checks ranges.
func (c *Config) validate() error {
	service.Default(&c.Listen, DefaultListen)
	if c.Data != "" {
		service.Default(&c.Ledger, filepath.Join(c.Data, "ledger"))
	}
	service.Default(&c.PullInterval, 10*time.Second)
	service.Default(&c.Late, time.Hour)
	if err := service.Prepare(c.Listen, c.Admin, c.AdminHosts, &c.Clock, &c.Log); err != nil {
		return err
	}
	if err := display.CheckHosts(settingHosts, c.Hosts); err != nil {
		return err
	}
	switch {
	case c.SignKey == "":
		return invalid.Field("sign_key", `""`, "the file of the verifier's signing key")
	case c.Data == "":
		return invalid.Field("data", `""`, "a folder for batches")
	case c.PullInterval < 10*time.Millisecond || c.PullInterval > time.Hour:
		return invalid.Field("pull_interval", c.PullInterval.String(), "10ms to 1h")
	case c.Late < time.Second || c.Late > 365*24*time.Hour:
		return invalid.Field("late", c.Late.String(), "1s to 8760h")
	case len(c.Tasks) == 0:
		return invalid.Field("tasks", "none", "at least one")
	}
	for _, t := range c.Tasks {
		if t.File == "" || t.HPKEKeys == "" {
			return invalid.Field("tasks", "one without file or hpke_keys", "both for each")
		}
		if budget := t.budget(); budget != nil {
			if err := budget.Check(); err != nil {
				return err
			}
		}
	}
	return nil
}
