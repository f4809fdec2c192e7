package issuer

import (
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
)

// The values that Config.Clients may have.
const (
	clientsAccount = "account"
	clientsAddress = "address"
)

// Config is an issuer's configuration. The fields with yaml names make up issuer.yaml. Unknown keys are errors.
// Relative paths start at the file's own folder.
type Config struct {
	// Listen is the public address, "host:port". A proxy in front of it provides TLS. Required, unless Listener is set
	// or Handler is served elsewhere.
	Listen string `yaml:"listen"`

	// Admin is the address of /healthz, /readyz, /metrics and /status, "host:port". Keep it private.
	// Default: none.
	Admin string `yaml:"admin"`

	// AdminHosts are host names, without port, under which the admin address answers, besides IP addresses and
	// localhost. An example is the name that Prometheus uses. The list protects against DNS rebinding: a hostile web
	// page that makes its own name resolve to the admin address sends its own name, which the issuer refuses. Default:
	// none.
	AdminHosts []string `yaml:"admin_hosts"`

	// Store is where the issuer counts issued tokens: "sqlite:PATH". Required.
	Store string `yaml:"store"`

	// Clients says who gets tokens. Required. "account": each account that a site's backend, with its API key, names in
	// the header Doona-Account. "address": each network, an IPv4 /24 or an IPv6 /48, counts as one client. This does
	// not protect against an attacker with many networks (Sybils).
	Clients string `yaml:"clients"`

	// APIKeys is a file of mode 0600 with the API keys of backends, one per line, 32 characters or more (`openssl rand
	// -base64 32`). Required with "clients: account"; not allowed with "clients: address".
	APIKeys string `yaml:"api_keys"`

	// TrustedProxies are networks, in CIDR notation, of proxies whose ForwardedHeader the issuer trusts. Default: none.
	TrustedProxies []string `yaml:"trusted_proxies"`

	// ForwardedHeader is the header that the trusted proxies set: "X-Forwarded-For" or "Forwarded". Default
	// "X-Forwarded-For".
	ForwardedHeader string `yaml:"forwarded_header"`

	// MaxConcurrent is the maximum number of concurrent requests. One client (an account or a network) may use an
	// eighth of the free capacity. If the issuer has several tasks, one task may use at most as much as it leaves free.
	// The issuer refuses further requests with 503 or 429. A signature takes about 1 ms of one core. Default 64. Range
	// 1 to 4096.
	MaxConcurrent int `yaml:"max_concurrent"`

	// MaxConnections is the maximum number of open connections to the public address. One network, except trusted
	// proxies, may use an eighth of the free capacity. The issuer closes further connections at once. Default 4096.
	// Range 8 to 1048576.
	MaxConnections int `yaml:"max_connections"`

	service.Timing `yaml:",inline"`

	// Skew is how far a client's clock may differ from the issuer's; use the relays' value. The issuer issues an
	// epoch's tokens from (one epoch + Skew) before the epoch starts until Skew after it ends. Then it erases the
	// epoch's key. Default 5m. Range 1ms to 5m.
	Skew time.Duration `yaml:"skew"`

	// FollowInterval is how often the issuer asks a stream's first relay for the next task. Default 1m. Range 10ms to
	// 1h.
	FollowInterval time.Duration `yaml:"follow_interval"`

	// SignKey is the file of the issuer's Ed25519 key, which signed its list of token keys. If it is set, the issuer
	// answers relays that ask for the time, signed with this key; so the relays have one more clock to compare with.
	// Default: none.
	SignKey string `yaml:"sign_key"`

	// OldSignKeys are files of keys that SignKey has replaced in streams (`doona task rotate-key`). The issuer still
	// signs with such a key for tasks that name it. Default: none.
	OldSignKeys []string `yaml:"old_sign_keys"`

	// CA is a PEM file with certificates of authorities. When the issuer asks relays for their time, it trusts these
	// and the system's authorities. Default: none.
	CA string `yaml:"ca"`

	// Tasks lists the tasks to issue tokens for. Required.
	Tasks []TaskConfig `yaml:"tasks"`

	// Listener and AdminListener replace Listen and Admin in a program that embeds an issuer.
	Listener      net.Listener `yaml:"-"`
	AdminListener net.Listener `yaml:"-"`

	// Clock replaces time.Now in tests.
	Clock func() time.Time `yaml:"-"`

	// Elapsed replaces the process's monotonic time in tests. Default: the monotonic readings of Clock.
	Elapsed func() time.Duration `yaml:"-"`

	// Log receives operational events, without accounts, addresses or requests. Default: none.
	Log *slog.Logger `yaml:"-"`
}

// TaskConfig names a task that the operator has agreed to issue tokens for.
type TaskConfig struct {
	// File is the task's bundle (`doona task new`). Required.
	File string `yaml:"file"`

	// Owner is the task owner's key, "ed25519:…". It must have signed the task. Required.
	Owner string `yaml:"owner"`

	// Recovery is a second key, "ed25519:…", that may replace the owner's key in a stream, or stop the stream. Default:
	// none.
	Recovery string `yaml:"recovery"`

	// TokenKeys is the file of the issuer's keys for this task (`issuer keygen`), preferably not on the store's disk.
	// Its folder must be writable: the issuer erases keys there, and FILE.mark binds them to the store. Required.
	TokenKeys string `yaml:"token_keys"`

	// Successors is a folder for the later tasks of this task's stream and for their keys, preferably not on the
	// store's disk. The issuer fetches these tasks from the first relay and writes each to POSITION.bundle,
	// permanently. Before the owner signs a task of N epochs, make the issuer's keys for it in this folder (`issuer
	// keygen --epochs N --out FOLDER/POSITION-N.keys`). Required for the first task of a stream; not allowed otherwise.
	Successors string `yaml:"successors"`

	// Quota is how many tokens a client gets per epoch. One token pays for one report, and the privacy that the task
	// promises is per report. With "clients: address" and a quota above 1, the issuer draws a quota for each network
	// and epoch, uniformly from Quota to 2·Quota − 1. Default 1. Range 1 to 1000.
	Quota int `yaml:"quota"`
}

// LoadConfig reads issuer.yaml. It does not check values or open the files that the configuration names; [New] does.
func LoadConfig(path string) (Config, error) {
	var c Config
	if err := service.ReadConfig(path, &c); err != nil {
		return c, err
	}
	files := []*string{&c.APIKeys, &c.SignKey, &c.CA}
	for i := range c.OldSignKeys {
		files = append(files, &c.OldSignKeys[i])
	}
	for i := range c.Tasks {
		files = append(files, &c.Tasks[i].File, &c.Tasks[i].TokenKeys, &c.Tasks[i].Successors)
	}
	service.Resolve(filepath.Dir(path), files...)
	service.ResolveStore(filepath.Dir(path), &c.Store)
	return c, nil
}

func (c *Config) validate() error {
	clients := service.ClientSettings{ForwardedHeader: &c.ForwardedHeader, MaxConnections: &c.MaxConnections,
		Skew: &c.Skew}
	clients.SetDefaults()
	service.Default(&c.MaxConcurrent, 64)
	service.Default(&c.FollowInterval, time.Minute)
	if err := service.Prepare(c.Listen, c.Admin, c.AdminHosts, &c.Timing, &c.Clock, &c.Log); err != nil {
		return err
	}
	switch {
	case !strings.HasPrefix(c.Store, service.SchemeSQLite) || c.Store == service.SchemeSQLite:
		return invalid.Field("store", fmt.Sprintf("%q", c.Store), `"sqlite:" and a path`)
	case c.Clients != clientsAccount && c.Clients != clientsAddress:
		return invalid.Field("clients", fmt.Sprintf("%q", c.Clients), "account or address")
	case (c.APIKeys != "") != (c.Clients == clientsAccount):
		return invalid.Field("api_keys", fmt.Sprintf("%q", c.APIKeys),
			"a file for clients: account, and none for address")
	}
	if err := clients.CheckForwardedHeader(); err != nil {
		return err
	}
	if c.MaxConcurrent < 1 || c.MaxConcurrent > 4096 {
		return invalid.Field("max_concurrent", fmt.Sprint(c.MaxConcurrent), "1 to 4096")
	}
	if err := clients.CheckMaxConnections(); err != nil {
		return err
	}
	if err := clients.CheckSkew(); err != nil {
		return err
	}
	switch {
	case c.FollowInterval < 10*time.Millisecond || c.FollowInterval > time.Hour:
		return invalid.Field("follow_interval", c.FollowInterval.String(), "10ms to 1h")
	case len(c.Tasks) == 0:
		return invalid.Field("tasks", "none", "at least one")
	}
	for i := range c.Tasks {
		service.Default(&c.Tasks[i].Quota, 1)
		if q := c.Tasks[i].Quota; q < 1 || q > 1000 {
			return invalid.Field("quota", fmt.Sprint(q), "1 to 1000")
		}
	}
	return nil
}

// closeToGroup closes the files of keys to their group: the configured files, and those in the folders of successors.
func (c *Config) closeToGroup() error {
	files := append([]string{c.APIKeys, c.SignKey}, c.OldSignKeys...)
	var folders []string
	for _, t := range c.Tasks {
		files, folders = append(files, t.TokenKeys), append(folders, t.Successors)
	}
	return durable.CloseToGroup(c.Log, files, folders)
}

const minAPIKey = 32

// loadAPIKeys reads the backends' API keys from a file, one per line. It returns none for an empty path.
func loadAPIKeys(path string) (keys []string, err error) {
	if path == "" {
		return nil, nil
	}
	in, err := durable.ReadPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the API keys: %w", err)
	}
	for line := range strings.Lines(string(in)) {
		key := strings.TrimSpace(line)
		if key == "" {
			continue
		}
		if len(key) < minAPIKey {
			return nil, invalid.Field("api_keys", fmt.Sprintf("a key of %d characters", len(key)),
				"32 or more characters in each line")
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, invalid.Field("api_keys", path, "a file with at least one key")
	}
	return keys, nil
}
