package relay

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/storage"
	"github.com/doona-dp/doona/relay/internal/store"
)

// Config is the configuration of a relay. The fields with yaml names make up relay.yaml. Unknown keys in it are errors.
// Relative paths start at the file's own folder.
type Config struct {
	// Listen is the public address, "host:port". Required, unless Listener is set or Handler is
	// served elsewhere.
	Listen string `yaml:"listen"`

	// TLS names the certificate of the public address. Default: none; then Autocert or a proxy in front of the relay
	// provides TLS.
	TLS *TLSConfig `yaml:"tls"`

	// Autocert gets the certificate from an ACME authority such as Let's Encrypt, and renews it. Default: none.
	Autocert *AutocertConfig `yaml:"autocert"`

	// CA is a file of certificates (PEM) of authorities that this relay trusts, besides the system's, when it connects
	// to other relays, the issuer of tokens or the authority of Autocert. Default: none.
	CA string `yaml:"ca"`

	// Admin is the address of /healthz, /readyz, /metrics and /status, "host:port". Keep it private: metrics reveal
	// when reports arrive. Default: none.
	Admin string `yaml:"admin"`

	// AdminHosts are further host names, without port, that the admin address answers to, besides IP addresses and
	// localhost: for example the one that Prometheus uses. They protect against DNS rebinding: a page of another site
	// that makes its own name resolve to the address sends that name, and is refused. Default: none.
	AdminHosts []string `yaml:"admin_hosts"`

	// SignKey is the file of the relay's Ed25519 key (`relay keygen --kind sign`). Required.
	SignKey string `yaml:"sign_key"`

	// OldSignKeys are files of keys that SignKey has replaced in streams (`doona task rotate-key`). The relay signs
	// with an old key for the tasks that name it. Default: none.
	OldSignKeys []string `yaml:"old_sign_keys"`

	// HPKEKeys is the file of the relay's HPKE keys, one per epoch (`relay keygen --kind hpke`). Tasks may name their
	// own. A file serves one task only, because the relay erases each key when that task's epoch ends. Required, unless
	// every task names its own.
	HPKEKeys string `yaml:"hpke_keys"`

	// Store is where the relay stores reports and batches: "sqlite:PATH", or a PostgreSQL URL,
	// "postgres://USER@HOST/DATABASE". Several processes of this relay may share a PostgreSQL database. Required.
	Store string `yaml:"store"`

	// Secret is a file outside the store. The relay creates it with mode 0600 if it does not exist. It holds the keys
	// that encrypt and hash the store's rows. The relay destroys each key as soon as its rows are no longer needed:
	// keep the file out of backups. Several processes on one store need the same file, or copies of it from before any
	// of them ran. Required.
	Secret string `yaml:"secret"`

	// Scratch is a folder with space for the largest batch. The relay permutes a batch that does not fit in memory in a
	// file there. The file has no name, and is encrypted under a key that exists only in memory. Default: the folder of
	// an SQLite store, otherwise the folder of temporary files. Do not use the file system of Secret: a large batch
	// could fill it.
	Scratch string `yaml:"scratch"`

	// TrustedProxies are networks, in CIDR notation, of proxies whose ForwardedHeader the relay trusts. Default: none.
	TrustedProxies []string `yaml:"trusted_proxies"`

	// ForwardedHeader is the header that the trusted proxies set: "X-Forwarded-For" or "Forwarded". The relay ignores
	// the other one, because a proxy may pass on a value that a client wrote. Default "X-Forwarded-For".
	ForwardedHeader string `yaml:"forwarded_header"`

	// MaxConcurrent limits the reports in flight. One network may use an eighth of the free capacity. The relay answers
	// further reports with 503, or with 429 if the network is at its limit. Default 1024. Range 1 to 65536.
	MaxConcurrent int `yaml:"max_concurrent"`

	// MaxMemory limits the memory of reports in flight, for example "256MiB". Before the relay reads a report, it
	// reserves four times the report's length plus 16 KiB. One of several tasks may use as much as it leaves free.
	// Default 256MiB. Range 1MiB to 1024GiB, and enough for the largest report of every task at the same time.
	MaxMemory Size `yaml:"max_memory"`

	// MaxConnections limits open connections to the public address. One network, except trusted proxies, may use an
	// eighth of the free capacity. Further connections are closed at once. A connection takes about 20 KiB of memory,
	// 50 KiB with TLS. Default 4096. Range 8 to 1048576.
	MaxConnections int `yaml:"max_connections"`

	// Group limits how many reports share one durable transaction. Default 1024. Range 1 to 65536.
	Group int `yaml:"group"`

	// PullInterval is how long a later relay waits before it asks again for a batch that was not sealed. Default 5s.
	// Range 10ms to 1h.
	PullInterval time.Duration `yaml:"pull_interval"`

	// Skew is how much clients' clocks may differ: an epoch accepts reports from Skew before its start to Skew after
	// its end. Default 5m, the value that every client expects; use less only for tests and demonstrations. Range 1ms
	// to 5m.
	Skew time.Duration `yaml:"skew"`

	// GiveUp is how long after an epoch's end a later relay waits for its upstream relay. Then it ends the epoch,
	// erases the epoch's key and records a finding. Default 168h. Range above Skew.
	GiveUp time.Duration `yaml:"give_up"`

	// Retention is how long after an epoch's end its manifests and findings stay. Then the relay destroys them, and the
	// batches that the next hop has not confirmed. Default 2160h, 90 days. Range above GiveUp.
	Retention time.Duration `yaml:"retention"`

	// Tasks lists the tasks that the relay serves. Required, unless there are Owners.
	Tasks []TaskConfig `yaml:"tasks"`

	// Owners lists the owners whose tasks the relay serves without asking for each one. Default: none.
	Owners []OwnerConfig `yaml:"owners"`

	// Listener and AdminListener replace Listen and Admin in a program that embeds a relay.
	Listener      net.Listener `yaml:"-"`
	AdminListener net.Listener `yaml:"-"`

	// Clock replaces time.Now in tests; epochs follow it, waits between attempts do not.
	Clock func() time.Time `yaml:"-"`

	// Elapsed replaces the monotonic time of the process in tests. Default: from the monotonic readings of Clock.
	Elapsed func() time.Duration `yaml:"-"`

	// Seam replaces parts of the relay in the test suites below relay/internal. Default: none.
	Seam *storage.Seam `yaml:"-"`

	// Log receives operational events, without addresses, ids or ciphertexts. Default: none.
	Log *slog.Logger `yaml:"-"`
}

// TaskConfig names one task that the operator has agreed to serve.
type TaskConfig struct {
	// File is the task's bundle (`doona task new`). Required.
	File string `yaml:"file"`

	// Owner is the task owner's key, "ed25519:…". It must have signed the task. Required.
	Owner string `yaml:"owner"`

	// Recovery is a key, "ed25519:…", that may replace the owner's key in a stream, or stop the stream. It overrides
	// everything that the owner's key has signed. Agree on it with the owner when you agree on the stream. Default:
	// none.
	Recovery string `yaml:"recovery"`

	// Candidates are keys, "ed25519:…", of relays that may replace one in a stream. The relay refuses a task with any
	// other new relay. Otherwise a thief of the owner's key could end the stream with a relay that no page accepts.
	// Agree on the candidates with the owner: list the relays that its pages accept. Default: any relay, if the first
	// task allows it.
	Candidates []string `yaml:"candidates"`

	// HPKEKeys is the file of this relay's HPKE keys for this task. Default: the relay's.
	HPKEKeys string `yaml:"hpke_keys"`

	// Successors is a folder for the tasks that follow the first task of a stream, and for this relay's keys for them.
	// The relay creates it with mode 0700. Protect it like HPKEKeys. Several processes of one relay share it, and the
	// secret. Required for the first task of a stream; else none.
	Successors string `yaml:"successors"`

	// IssuerKeys is a file with the public keys of the task's issuer of tokens, for a first relay that cannot reach the
	// issuer (`issuer keygen` writes FILE.directory). Default: the relay fetches each epoch's key from the issuer. For
	// successors it always does.
	IssuerKeys string `yaml:"issuer_keys"`
}

// OwnerConfig approves an owner, who may then add tasks without asking the operator.
type OwnerConfig struct {
	// Owner is the owner's key, "ed25519:…", which signs the tasks. Required.
	Owner string `yaml:"owner"`

	// Folder is for the tasks that the owner hands over, and for this relay's keys for them. The relay creates it with
	// mode 0700. Protect it like HPKEKeys. Several processes of one relay share it, and the secret. Required.
	Folder string `yaml:"folder"`

	// Tasks is how many tasks the owner may have at the same time; a stream counts as one task. The relay divides
	// MaxMemory as if the owner had all these tasks. Required. Range 1 to 1024.
	Tasks int `yaml:"tasks"`

	// Recovery and Candidates are as in TaskConfig, for all streams that the owner begins here. Default: none.
	Recovery   string   `yaml:"recovery"`
	Candidates []string `yaml:"candidates"`
}

// taskLimit is the largest number of tasks at the same time. A stream counts as one, because its tasks follow each
// other.
func (c *Config) taskLimit() int {
	n := len(c.Tasks)
	for _, o := range c.Owners {
		n += o.Tasks
	}
	return n
}

// TLSConfig names a certificate. If its files are replaced, the relay reads them again at the next connection.
type TLSConfig struct {
	// Cert is the file of the certificate and its intermediate certificates (PEM). Required.
	Cert string `yaml:"cert"`

	// Key is the file of its private key (PEM). Required.
	Key string `yaml:"key"`
}

// AutocertConfig says how the relay gets a certificate (RFC 8555). The authority connects to the public address to
// check that it belongs to the named host (tls-alpn-01, RFC 8737): the address must be reachable on port 443 under each
// name. By setting this you agree to the authority's terms.
type AutocertConfig struct {
	// Hosts are the names in this relay's URLs. Required.
	Hosts []string `yaml:"hosts"`

	// Email is an address to which the authority may write. Default: none.
	Email string `yaml:"email"`

	// Cache is a folder for keys and certificates, created with mode 0700. Required.
	Cache string `yaml:"cache"`

	// Directory is the authority's URL. Default: Let's Encrypt.
	Directory string `yaml:"directory"`
}

// LoadConfig reads relay.yaml. It neither opens the files that it names nor checks values: [New] does.
func LoadConfig(path string) (Config, error) {
	var c Config
	if err := service.ReadConfig(path, &c); err != nil {
		return c, err
	}
	c.resolve(filepath.Dir(path))
	return c, nil
}

// resolve makes relative paths start at folder.
func (c *Config) resolve(folder string) {
	files := []*string{&c.SignKey, &c.HPKEKeys, &c.Secret, &c.CA, &c.Scratch}
	if c.TLS != nil {
		files = append(files, &c.TLS.Cert, &c.TLS.Key)
	}
	if c.Autocert != nil {
		files = append(files, &c.Autocert.Cache)
	}
	for i := range c.OldSignKeys {
		files = append(files, &c.OldSignKeys[i])
	}
	for i := range c.Tasks {
		files = append(files, &c.Tasks[i].File, &c.Tasks[i].HPKEKeys, &c.Tasks[i].IssuerKeys,
			&c.Tasks[i].Successors)
	}
	for i := range c.Owners {
		files = append(files, &c.Owners[i].Folder)
	}
	service.Resolve(folder, files...)
	service.ResolveStore(folder, &c.Store)
}

// scratch returns the default of Scratch. It is not the secret's folder: a large batch could fill that, and then the
// relay could not destroy keys.
func (c *Config) scratch() string {
	if path, ok := strings.CutPrefix(c.Store, service.SchemeSQLite); ok {
		return filepath.Dir(path)
	}
	return os.TempDir()
}

func (c *Config) clients() service.ClientSettings {
	return service.ClientSettings{ForwardedHeader: &c.ForwardedHeader, MaxConnections: &c.MaxConnections,
		Skew: &c.Skew}
}

// validate fills in defaults and checks ranges.
func (c *Config) validate() error {
	c.clients().SetDefaults()
	service.Default(&c.MaxConcurrent, 1024)
	service.Default(&c.MaxMemory, 256<<20)
	service.Default(&c.Group, 1024)
	service.Default(&c.PullInterval, 5*time.Second)
	service.Default(&c.Scratch, c.scratch())
	service.Default(&c.GiveUp, 7*24*time.Hour)
	service.Default(&c.Retention, 90*24*time.Hour)
	if err := service.Prepare(c.Listen, c.Admin, c.AdminHosts, &c.Clock, &c.Log); err != nil {
		return err
	}
	switch {
	case c.SignKey == "":
		return invalid.Field("sign_key", `""`, "the file of the relay's signing key")
	case c.Secret == "":
		return invalid.Field("secret", `""`, "a file outside the store (created if missing)")
	case store.Check(c.Store) != nil:
		return store.Check(c.Store)
	}
	if err := c.clients().CheckForwardedHeader(); err != nil {
		return err
	}
	if len(c.Tasks)+len(c.Owners) == 0 {
		return invalid.Field("tasks", "none", "at least one task or one approved owner")
	}
	if err := c.validateTLS(); err != nil {
		return err
	}
	return c.validateRanges()
}

func (c *Config) validateRanges() error {
	switch {
	case c.MaxConcurrent < 1 || c.MaxConcurrent > 65536:
		return invalid.Field("max_concurrent", fmt.Sprint(c.MaxConcurrent), "1 to 65536")
	case c.MaxMemory < 1<<20 || c.MaxMemory > 1<<40:
		return invalid.Field("max_memory", c.MaxMemory.String(), "1MiB to 1024GiB")
	}
	if err := c.clients().CheckMaxConnections(); err != nil {
		return err
	}
	switch {
	case c.Group < 1 || c.Group > 65536:
		return invalid.Field("group", fmt.Sprint(c.Group), "1 to 65536")
	case c.PullInterval < 10*time.Millisecond || c.PullInterval > time.Hour:
		return invalid.Field("pull_interval", c.PullInterval.String(), "10ms to 1h")
	}
	if err := c.clients().CheckSkew(); err != nil {
		return err
	}
	switch {
	case c.GiveUp <= c.Skew:
		return invalid.Field("give_up", c.GiveUp.String(), "more than skew")
	case c.Retention <= c.GiveUp:
		return invalid.Field("retention", c.Retention.String(), "more than give_up")
	}
	return nil
}

// CheckStore returns an error unless description is a valid Store of a configuration.
func CheckStore(description string) error { return store.Check(description) }
