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

// Config is the configuration of a relay. relay.yaml sets the fields that have yaml names; an unknown key in relay.yaml
// is an error. Relative paths start at the folder of relay.yaml.
type Config struct {
	// Listen is the public address, "host:port". Required, unless the program that embeds the relay sets Listener or
	// serves Handler itself.
	Listen string `yaml:"listen"`

	// TLS names the certificate of the public address. Default: none. Without TLS and Autocert, a proxy in front of the
	// relay must provide TLS.
	TLS *TLSConfig `yaml:"tls"`

	// Autocert gets the certificate from an ACME authority such as Let's Encrypt, and renews it. Default: none.
	Autocert *AutocertConfig `yaml:"autocert"`

	// CA is a PEM file with certificates of authorities. The relay trusts them, besides the system's authorities, when
	// it connects to other relays, to the issuer of tokens or to the ACME authority. Default: none.
	CA string `yaml:"ca"`

	// Admin is the address of /healthz, /readyz, /metrics and /status, "host:port". Keep it private: metrics reveal
	// when reports arrive. Default: none.
	Admin string `yaml:"admin"`

	// AdminHosts are host names, without port, that the admin address accepts in requests, for example the name that
	// Prometheus uses. IP addresses and localhost are always accepted. The list protects against DNS rebinding: a web
	// page that points its own host name at the admin address sends that name, and the relay refuses the request.
	// Default: none.
	AdminHosts []string `yaml:"admin_hosts"`

	// SignKey is the file of the relay's Ed25519 key (`relay keygen --kind sign`). Required.
	SignKey string `yaml:"sign_key"`

	// OldSignKeys are key files that SignKey has replaced in streams (`doona task rotate-key`). If a task names an old
	// key, the relay signs with the old key for that task. Default: none.
	OldSignKeys []string `yaml:"old_sign_keys"`

	// HPKEKeys is the file of the relay's HPKE keys, one per epoch (`relay keygen --kind hpke`). A task may name its
	// own file in TaskConfig. Each file serves only one task, because the relay erases each key when that task's epoch
	// ends. Required, unless every task names its own file.
	HPKEKeys string `yaml:"hpke_keys"`

	// Store is where the relay stores reports and batches: "sqlite:PATH", or a PostgreSQL URL,
	// "postgres://USER@HOST/DATABASE". Several processes of this relay may share a PostgreSQL database. Required.
	Store string `yaml:"store"`

	// Secret is a file outside the store. The relay creates it with mode 0600 if it does not exist. It holds the keys
	// that encrypt and hash the store's rows. The relay destroys each key as soon as its rows are no longer needed, so
	// keep the file out of backups. All processes on one store need the same file, or copies made before any of them
	// ran. Required.
	Secret string `yaml:"secret"`

	// Scratch is a folder with space for the largest batch. If a batch does not fit in memory, the relay shuffles it in
	// a file in this folder. The file has no name, and the key that encrypts it exists only in memory. Default: the
	// folder of an SQLite store; with PostgreSQL, the system's folder of temporary files. Do not use the file system of
	// Secret: a large batch could fill it.
	Scratch string `yaml:"scratch"`

	// TrustedProxies are networks, in CIDR notation. The relay believes ForwardedHeader only from proxies in them.
	// Default: none.
	TrustedProxies []string `yaml:"trusted_proxies"`

	// ForwardedHeader is the header that the trusted proxies set: "X-Forwarded-For" or "Forwarded". The relay ignores
	// the other header, because a client may have written it and the proxy passed it on. Default "X-Forwarded-For".
	ForwardedHeader string `yaml:"forwarded_header"`

	// MaxConcurrent limits how many reports the relay handles at the same time. One network may use an eighth of the
	// free capacity. Beyond the limit the relay answers 503, or 429 if the network is at its own limit. Default 1024.
	// Range 1 to 65536.
	MaxConcurrent int `yaml:"max_concurrent"`

	// MaxMemory limits the memory of the reports being handled, for example "256MiB". Before the relay reads a report,
	// it reserves four times the report's length plus 16 KiB. With several tasks, each may reserve at most as much
	// memory as then stays free. Default 256MiB. Range 1MiB to 1024GiB; it must hold the largest report of every task
	// at once.
	MaxMemory Size `yaml:"max_memory"`

	// MaxConnections limits open connections to the public address. One network, except trusted proxies, may use an
	// eighth of the free capacity. Further connections are closed at once. A connection takes about 20 KiB of memory,
	// 50 KiB with TLS. Default 4096. Range 8 to 1048576.
	MaxConnections int `yaml:"max_connections"`

	service.Timing `yaml:",inline"`

	// Group limits how many reports one durable transaction commits. Default 1024. Range 1 to 65536.
	Group int `yaml:"group"`

	// PullInterval is how long a later relay waits before it asks again for a batch that the upstream relay had not
	// sealed. Default 5s. Range 10ms to 1h.
	PullInterval time.Duration `yaml:"pull_interval"`

	// Skew is how far clients' clocks may be off: the relay accepts an epoch's reports from Skew before the epoch's
	// start to Skew after its end. Default 5m, the value that every client expects; use less only for tests and
	// demonstrations. Range 1ms to 5m.
	Skew time.Duration `yaml:"skew"`

	// GiveUp is how long after an epoch's end a later relay waits for its upstream relay's batches. Then the later
	// relay ends the epoch, erases the epoch's key and records a finding. Default 168h. Range above Skew.
	GiveUp time.Duration `yaml:"give_up"`

	// Retention is how long after an epoch's end the relay keeps the epoch's manifests and findings. Then it destroys
	// them, and the batches that the next hop has not confirmed. Default 2160h, 90 days. Range above GiveUp.
	Retention time.Duration `yaml:"retention"`

	// Tasks lists the tasks that the relay serves. Required, unless Owners is set.
	Tasks []TaskConfig `yaml:"tasks"`

	// Owners lists task owners. The relay serves their tasks without asking the operator about each task.
	// [Relay.Reload] applies changes of Owners, and of nothing else. Default: none.
	Owners []OwnerConfig `yaml:"owners"`

	// Sets lists sets of tables: tasks in Tasks that clients answer by one submission a day. The sets of approved
	// owners are not listed. Default: none.
	Sets []SetConfig `yaml:"sets"`

	// Listener and AdminListener replace Listen and Admin where another program embeds the relay.
	Listener      net.Listener `yaml:"-"`
	AdminListener net.Listener `yaml:"-"`

	// Clock replaces time.Now in tests. Epochs follow it; the pauses between attempts follow the real clock.
	Clock func() time.Time `yaml:"-"`

	// Elapsed replaces the process's monotonic clock in tests. Default: the monotonic readings of Clock.
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

	// Recovery is a key, "ed25519:…", that may replace the owner's key in a stream, or stop the stream. Its statements
	// override all that the owner's key signs. Agree on the key with the owner when you agree on the stream. Default:
	// none.
	Recovery string `yaml:"recovery"`

	// Candidates are keys, "ed25519:…", of relays that may replace a relay in a stream. This relay refuses a successor
	// that names any other new relay. Otherwise a thief of the owner's key could end the stream with a relay that no
	// page accepts. Agree on the candidates with the owner: list the relays that its pages accept. Default: any relay,
	// if the first task allows a replacement.
	Candidates []string `yaml:"candidates"`

	// HPKEKeys is the file of this relay's HPKE keys for this task. Default: the HPKEKeys of Config.
	HPKEKeys string `yaml:"hpke_keys"`

	// Successors is a folder for the later tasks of a stream, and for this relay's keys for them. The relay creates it
	// with mode 0700. Protect it like HPKEKeys. Several processes of one relay share this folder, as they share the
	// secret. Required for the first task of a stream; do not set it for other tasks.
	Successors string `yaml:"successors"`

	// IssuerKeys is a file with the public keys of the task's token issuer, for a first relay that cannot reach the
	// issuer (`issuer keygen` writes FILE.directory). Default: the relay fetches each epoch's key from the issuer. For
	// later tasks of a stream it always fetches the keys.
	IssuerKeys string `yaml:"issuer_keys"`
}

// SetConfig names one set of tables that the operator has agreed to serve.
type SetConfig struct {
	// File is the set's bundle. Each of its tables must be in Config.Tasks. Keep the set until its last day is over:
	// the relay takes no single reports to its tables. Required.
	File string `yaml:"file"`

	// Owner is the key of the set's owner, "ed25519:…", who also signed its tables. Required.
	Owner string `yaml:"owner"`
}

// OwnerConfig approves an owner, who may then add tasks without asking the operator.
type OwnerConfig struct {
	// Owner is the owner's key, "ed25519:…", which signs the tasks. Required.
	Owner string `yaml:"owner"`

	// Folder holds the tasks that the owner hands over, and this relay's keys for them. The relay creates it with mode
	// 0700. Protect it like HPKEKeys. Several processes of one relay share this folder, as they share the secret.
	// Required.
	Folder string `yaml:"folder"`

	// Tasks is how many tasks the owner may have at the same time; a stream counts as one task. The relay divides
	// MaxMemory as if the owner had that many tasks. Required. Range 1 to 1024.
	Tasks int `yaml:"tasks"`

	// ReportsPerSecond limits the reports of all tasks of the owner together, also those that the relay refuses. Only
	// the first relay of a task applies it. Range 1 to 1000000. Default 0: no limit.
	ReportsPerSecond int `yaml:"reports_per_second"`

	// Bytes limits the disk space that reports of open batches, and unconfirmed batches, take in all tasks of the owner
	// together. Above it, the first relay refuses reports. Default 0: no limit.
	Bytes DiskSize `yaml:"bytes"`

	// Dummies is how many dummies a new task of the owner may ask of this relay for one batch. Range 1 to 2^32. Default
	// 0: no limit.
	Dummies uint64 `yaml:"dummies"`

	// Suspended makes the relay refuse new tasks of the owner, and reports of its tasks, for now. What the relay has
	// accepted still goes to the next hop. Default false.
	Suspended bool `yaml:"suspended"`

	// Recovery and Candidates are as in TaskConfig, and apply to every stream that the owner begins here. Default:
	// none.
	Recovery   string   `yaml:"recovery"`
	Candidates []string `yaml:"candidates"`
}

// TLSConfig names a certificate. After its files are replaced, the relay loads the new ones at the next connection.
type TLSConfig struct {
	// Cert is the file of the certificate and its intermediate certificates (PEM). Required.
	Cert string `yaml:"cert"`

	// Key is the file of the certificate's private key (PEM). Required.
	Key string `yaml:"key"`
}

// AutocertConfig says how the relay gets a certificate from an ACME authority (RFC 8555). The authority connects to
// each host name to check that this relay owns it (tls-alpn-01, RFC 8737): the public address must be reachable on port
// 443 under each name. By setting Autocert you agree to the authority's terms.
type AutocertConfig struct {
	// Hosts are the host names in this relay's URLs. Required.
	Hosts []string `yaml:"hosts"`

	// Email is an address to which the authority may write. Default: none.
	Email string `yaml:"email"`

	// Cache is a folder for the ACME keys and certificates. The relay creates it with mode 0700. Required.
	Cache string `yaml:"cache"`

	// Directory is the https URL of the authority's ACME directory. Default: Let's Encrypt.
	Directory string `yaml:"directory"`
}

// LoadConfig reads relay.yaml. [New] later checks the values and opens the files that they name.
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
	for i := range c.Sets {
		files = append(files, &c.Sets[i].File)
	}
	service.Resolve(folder, files...)
	service.ResolveStore(folder, &c.Store)
}

// scratch returns the default of Scratch. It avoids the secret's folder: a large batch could fill that disk, and the
// relay could then not destroy keys.
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

func (c *Config) validate() error {
	c.clients().SetDefaults()
	service.Default(&c.MaxConcurrent, 1024)
	service.Default(&c.MaxMemory, 256<<20)
	service.Default(&c.Group, 1024)
	service.Default(&c.PullInterval, 5*time.Second)
	service.Default(&c.Scratch, c.scratch())
	service.Default(&c.GiveUp, 7*24*time.Hour)
	service.Default(&c.Retention, 90*24*time.Hour)
	if err := service.Prepare(c.Listen, c.Admin, c.AdminHosts, &c.Timing, &c.Clock, &c.Log); err != nil {
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
		return invalid.Field("give_up", c.GiveUp.String(), "more than skew, "+c.Skew.String())
	case c.Retention <= c.GiveUp:
		return invalid.Field("retention", c.Retention.String(), "more than give_up, "+c.GiveUp.String())
	}
	return nil
}

// CheckStore returns an error unless description is a valid value for [Config.Store].
func CheckStore(description string) error { return store.Check(description) }
