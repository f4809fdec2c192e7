package server

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/verifier"
)

// Config configures a verifier server. The yaml names of the fields are the keys of verifier.yaml. In that file,
// unknown keys are errors, and relative paths start at the file's folder.
type Config struct {
	// Listen is the address of the pages, "host:port". The pages show only estimates, but to everyone who can reach
	// them, unless PasswordFile or ProxyHeader is set. Default "127.0.0.1:8090", unless Listener is set.
	Listen string `yaml:"listen"`

	// Hosts are additional host names of the pages, without port, such as the name of a proxy before the verifier.
	// Requests for other names are refused, because a page of another site could make its own name resolve to this
	// address. IP addresses, localhost and a name in Listen are always allowed. Default: none.
	Hosts []string `yaml:"hosts"`

	// Admin is the address of /healthz, /readyz, /metrics and /status, "host:port". Keep it private.
	// Default: none.
	Admin string `yaml:"admin"`

	// AdminHosts are additional host names of the admin address, without port, such as the name that Prometheus
	// scrapes. Requests for other names are refused, because a page of another site could make its own name resolve to
	// this address. IP addresses and localhost are always allowed. Default: none.
	AdminHosts []string `yaml:"admin_hosts"`

	// PasswordFile is a file of `verifier password`. The pages then ask for that password. Default: none, so that
	// everyone who reaches the pages can read them.
	PasswordFile string `yaml:"password_file"`

	// ProxyHeader is the header in which a proxy names the signed-in user, such as X-Remote-User. The pages then answer
	// only requests from ProxyNetworks that have this header once. The proxy must replace a header of this name that a
	// client sends. Set PasswordFile or ProxyHeader, not both. Default: none.
	ProxyHeader string `yaml:"proxy_header"`

	// ProxyNetworks are the networks, such as 127.0.0.1/32, of the proxies before the pages. ProxyHeader needs them.
	// With PasswordFile, these proxies name clients in X-Forwarded-For, so that wrong passwords delay only the client's
	// network. Default: none.
	ProxyNetworks []string `yaml:"proxy_networks"`

	service.Timing `yaml:",inline"`

	// SignKey is the file of the verifier's Ed25519 signing key (`verifier keygen --kind sign`). Required.
	SignKey string `yaml:"sign_key"`

	// OldSignKeys are files of earlier keys that SignKey replaced in streams (`doona task rotate-key`). The verifier
	// signs requests for a task with the key that the task names. Default: none.
	OldSignKeys []string `yaml:"old_sign_keys"`

	// Data is the folder for batches, created with mode 0700. Each task has its own folder in it, named by the task's
	// id. Only one process at a time can use it. Required.
	Data string `yaml:"data"`

	// Ledger is the folder of the ledgers of published results, one for each stream or task outside a stream, created
	// with mode 0700. If results of the same streams are also published elsewhere, such as by `verifier analyze`, all
	// must use the same folder. Default: ledger in Data.
	Ledger string `yaml:"ledger"`

	// Webhook posts each result to a server when it is published. Default: none.
	Webhook WebhookConfig `yaml:"webhook"`

	// CA is a file of PEM certificates. The verifier trusts these authorities in addition to the system's. Default:
	// none.
	CA string `yaml:"ca"`

	// PullInterval is the interval between pulls from the last relay. Default 10s. Range 10ms to 1h.
	PullInterval time.Duration `yaml:"pull_interval"`

	// Late is how long after an epoch's end a missing signed end counts as late. A chain of relays needs some minutes.
	// Default 1h. Range 1s to 8760h.
	Late time.Duration `yaml:"late"`

	// ShowUnusable makes the pages also show unusable estimates, with a note. Default false.
	ShowUnusable bool `yaml:"show_unusable"`

	// Tasks lists the tasks to pull and count. Required.
	Tasks []TaskConfig `yaml:"tasks"`

	// Listener and AdminListener replace Listen and Admin in a program that embeds this server.
	Listener      net.Listener `yaml:"-"`
	AdminListener net.Listener `yaml:"-"`

	// Clock replaces time.Now in tests.
	Clock func() time.Time `yaml:"-"`

	// Log receives the server's log lines. Default: none.
	Log *slog.Logger `yaml:"-"`

	proxyNetworks []netip.Prefix
}

// WebhookConfig configures the webhook.
type WebhookConfig struct {
	// URL is the https URL to which results are posted. Redirects are not followed, and proxies of the environment are
	// not used. Required, if there is a webhook.
	URL string `yaml:"url"`

	// SecretFile is a file with the secret that signs each request: 32 to 1024 bytes in one line, mode 0600. Required.
	SecretFile string `yaml:"secret_file"`

	// AllowPrivate lets the URL's host resolve to an address of a private network or of this machine. Default false.
	AllowPrivate bool `yaml:"allow_private"`
}

// TaskConfig configures one task.
type TaskConfig struct {
	// File is the task's bundle, which `doona task new` wrote. Required.
	File string `yaml:"file"`

	// Owner is the public key, "ed25519:…", that must have signed the task. Default: any key, because the verifier's
	// operator is often the owner.
	Owner string `yaml:"owner"`

	// Recovery is a public key, "ed25519:…". Its holder may replace the owner's key in a stream, or stop the stream.
	// Default: none.
	Recovery string `yaml:"recovery"`

	// HPKEKeys is the file of the verifier's HPKE keys for this task (`verifier keygen --kind hpke`).
	// Required.
	HPKEKeys string `yaml:"hpke_keys"`

	// Successors is a folder for the later tasks of the stream that this task begins. The verifier finds them at the
	// first relay, and stores each permanently as POSITION.bundle. Make the keys for a task of N epochs there before
	// the owner signs it (`verifier keygen --kind hpke --epochs N --out FOLDER/POSITION-N.keys`). Default: the folder
	// successors/ID in Data.
	Successors string `yaml:"successors"`

	// Root is the bundle of the stream's first task, which names the stream's ledger. Set it for a later task, unless
	// the earlier tasks are listed too or a ledger already lists them. Default: none.
	Root string `yaml:"root"`

	// NewLedger creates the stream's ledger if there is none, for a later task whose stream's first task is not listed.
	// Set it only if no result of the stream was ever published. If false, a missing ledger is an error. Default false.
	NewLedger bool `yaml:"new_ledger"`

	// Visits is the file of another listed task, without a cap, to which every visitor reports in the same epochs. If
	// this task has a cap, its page then says what share of these visits it counts. Default: none.
	Visits string `yaml:"visits"`

	// TotalEpsilon and TotalDelta are a budget for all published epochs of the task's stream, or of a task in no
	// stream. The verifier withholds results beyond it. All tasks of a stream must have the same budget. Set both or
	// none. Default: the total that the task claims, or none for a task of a stream. Range of δ: above 0 and below 1.
	TotalEpsilon float64 `yaml:"total_epsilon"`
	TotalDelta   float64 `yaml:"total_delta"`
}

// budget returns the operator's budget, or nil if there is none.
func (t *TaskConfig) budget() *verifier.Budget {
	if t.TotalEpsilon == 0 && t.TotalDelta == 0 {
		return nil
	}
	return &verifier.Budget{Epsilon: t.TotalEpsilon, Delta: t.TotalDelta}
}

func (t *TaskConfig) budgetText() string {
	if t.budget() == nil {
		return "none"
	}
	return decimal.Format(t.TotalEpsilon, -1) + " at total_delta " + decimal.Format(t.TotalDelta, -1)
}

// DefaultListen is the default address of the pages.
const DefaultListen = "127.0.0.1:8090"

// LoadConfig reads verifier.yaml. [New] checks the values and opens the files that they name.
func LoadConfig(path string) (Config, error) {
	var c Config
	if err := service.ReadConfig(path, &c); err != nil {
		return c, err
	}
	files := []*string{&c.SignKey, &c.Data, &c.CA, &c.Ledger, &c.PasswordFile, &c.Webhook.SecretFile}
	for i := range c.OldSignKeys {
		files = append(files, &c.OldSignKeys[i])
	}
	for i := range c.Tasks {
		files = append(files, &c.Tasks[i].File, &c.Tasks[i].HPKEKeys, &c.Tasks[i].Successors,
			&c.Tasks[i].Root, &c.Tasks[i].Visits)
	}
	service.Resolve(filepath.Dir(path), files...)
	return c, nil
}

// closeToGroup closes the files of keys to their group: the configured files, and those in the folders of successors.
func (c *Config) closeToGroup() error {
	files := append([]string{c.SignKey, c.PasswordFile, c.Webhook.SecretFile}, c.OldSignKeys...)
	folders := []string{c.successors()}
	for _, t := range c.Tasks {
		files, folders = append(files, t.HPKEKeys), append(folders, t.Successors)
	}
	return durable.CloseToGroup(c.Log, files, folders)
}

// successors returns the folder of those streams' later tasks whose configuration names no folder.
func (c *Config) successors() string { return filepath.Join(c.Data, "successors") }

// validate sets defaults and checks ranges.
func (c *Config) validate() error {
	service.Default(&c.Listen, DefaultListen)
	if c.Data != "" {
		service.Default(&c.Ledger, filepath.Join(c.Data, "ledger"))
	}
	service.Default(&c.PullInterval, 10*time.Second)
	service.Default(&c.Late, time.Hour)
	if err := service.Prepare(c.Listen, c.Admin, c.AdminHosts, &c.Timing, &c.Clock, &c.Log); err != nil {
		return err
	}
	if err := display.CheckHosts(settingHosts, c.Hosts); err != nil {
		return err
	}
	if err := cmp.Or(c.validateLogin(), c.Webhook.validate()); err != nil {
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
			return invalid.Field("tasks", "a task without file or hpke_keys", "both for each task")
		}
		if budget := t.budget(); budget != nil {
			if err := budget.Check(); err != nil {
				return err
			}
		}
	}
	return nil
}

var headerName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,63}$`)

// sentByOthers are the beginnings of headers that browsers send by themselves, or that name no user.
var sentByOthers = []string{"Accept", "Authorization", "Cache-", "Connection", "Content-", "Cookie", "Date", "Forwarded",
	"Host", "If-", "Origin", "Pragma", "Priority", "Range", "Referer", "Sec-", "Te", "Upgrade", "User-Agent", "Via",
	"X-Forwarded-", "X-Real-Ip", "X-Requested-With"}

// validateLogin checks the settings of who may see the pages.
func (c *Config) validateLogin() (err error) {
	if c.proxyNetworks, err = service.ParseNetworks("proxy_networks", c.ProxyNetworks); err != nil {
		return err
	}
	forged := slices.ContainsFunc(sentByOthers, func(prefix string) bool {
		return strings.HasPrefix(http.CanonicalHeaderKey(c.ProxyHeader), prefix)
	})
	switch {
	case c.ProxyHeader == "" && len(c.ProxyNetworks) > 0 && c.PasswordFile == "":
		return invalid.Field("proxy_networks", strings.Join(c.ProxyNetworks, ", "),
			"none without password_file or proxy_header")
	case c.ProxyHeader == "":
		return nil
	case c.PasswordFile != "":
		return invalid.Field("proxy_header", strconv.Quote(c.ProxyHeader), "none with password_file")
	case !headerName.MatchString(c.ProxyHeader) || forged:
		return invalid.Field("proxy_header", strconv.Quote(c.ProxyHeader),
			"a header that only your proxy sets, such as X-Remote-User")
	case len(c.ProxyNetworks) == 0:
		return invalid.Field("proxy_networks", "none", "the networks of your proxies, such as 127.0.0.1/32: proxy_header "+
			"is believed only from them")
	}
	return nil
}

// maxURL is the maximum length of a webhook's URL in bytes.
const maxURL = 2048

// validate checks the settings of the webhook. Its errors do not have the URL, which may hold a token.
func (c *WebhookConfig) validate() error {
	if c.URL == "" {
		if *c != (WebhookConfig{}) {
			return invalid.Field("webhook.url", "none", "an https URL")
		}
		return nil
	}
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || len(c.URL) > maxURL || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "":
		return invalid.Field("webhook.url", "another text", "an https URL such as https://example.org/hook, without user and "+
			"fragment, of at most "+strconv.Itoa(maxURL)+" bytes")
	case c.SecretFile == "":
		return invalid.Field("webhook.secret_file", "none", "a file with a secret")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && !c.AllowPrivate && !isPublic(a) {
		return invalid.Field("webhook.url", "the address "+a.String(), "a public address, or allow_private: true")
	}
	return nil
}

// loadWebhookSecret reads the secret: the file's text without its last newline.
func loadWebhookSecret(path string) ([]byte, error) {
	raw, err := durable.ReadPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the webhook's secret: %w", err)
	}
	text := bytes.TrimSuffix(bytes.TrimSuffix(raw, []byte("\n")), []byte("\r"))
	if len(text) < 32 || len(text) > 1024 || bytes.ContainsAny(text, "\r\n") {
		return nil, invalid.Field("webhook.secret_file", strconv.Itoa(len(text))+" bytes", "one line of 32 to 1024 bytes")
	}
	return text, nil
}
