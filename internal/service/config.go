package service

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/codec"
)

// SchemeSQLite is the prefix that marks the setting of a store as the path of an SQLite file.
const SchemeSQLite = "sqlite:"

// maxNumber is the largest whole number that any configuration allows: that of max_connections.
const maxNumber = 1 << 20

// ReadConfig reads a YAML file into a struct. Unknown keys are errors.
func ReadConfig(path string, into any) error {
	in, err := readConfig(path)
	if err != nil {
		return fmt.Errorf("couldn't read the configuration: %w", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(in), yaml.Strict(),
		strictly(in, "a number with its unit, such as 5s, 10m or 48h", parseDuration),
		strictly(in, fmt.Sprintf("a whole number of at most %d", maxNumber),
			func(value string) (int, error) { return strconv.Atoi(value) }))
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("couldn't read %s: %w", path, err)
	}
	return nil
}

// strictly returns an option that reads the numbers of a type in the configuration in. Package yaml would cut a
// fraction to its whole part, and its errors about durations name no place. The error names the first line with the
// value, and the key there.
func strictly[T int | time.Duration](in []byte, want string, parse func(value string) (T, error)) yaml.DecodeOption {
	return yaml.CustomUnmarshaler(func(number *T, text []byte) (err error) {
		value, _, _ := strings.Cut(string(text), "#")
		value = strings.Trim(strings.TrimSpace(value), `"'`)
		if value == "" || value == "null" || value == "~" {
			return nil // The default.
		}
		if *number, err = parse(value); err == nil {
			return nil
		}
		n := 0
		for line := range strings.Lines(string(in)) {
			n++
			key, rest, ok := strings.Cut(line, ":")
			rest, found := strings.CutPrefix(strings.TrimLeft(rest, ` "'`), value)
			if ok && found && strings.IndexAny(rest+"#", " \t\r\n\"'#,]}") == 0 { // 5, but not 5m
				key = strings.Trim(key, ` -"'{`)
				return fmt.Errorf("line %d: %w", n, invalid.Field(key, strconv.Quote(value), want))
			}
		}
		return invalid.Field("number", strconv.Quote(value), want)
	})
}

// parseDuration reads a duration, which needs a unit.
func parseDuration(value string) (time.Duration, error) {
	if strings.Trim(value, "+-0") == "" {
		return 0, errors.New("no unit")
	}
	return time.ParseDuration(value)
}

// maxConfig is the maximum size of a configuration file, in bytes. A thousand tasks need about 200 kB.
const maxConfig = 1 << 20

func readConfig(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	in, err := io.ReadAll(io.LimitReader(file, maxConfig+1))
	if err == nil && len(in) > maxConfig {
		err = fmt.Errorf("%s has more than %d bytes", path, maxConfig)
	}
	if err == nil {
		if in, err = codec.Document(in); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	return in, err
}

// Resolve makes relative paths start at folder. Empty paths stay empty.
func Resolve(folder string, paths ...*string) {
	for _, path := range paths {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(folder, *path)
		}
	}
}

// ResolveStore does what [Resolve] does, for the path in the setting of an SQLite store.
func ResolveStore(folder string, store *string) {
	if path, ok := strings.CutPrefix(*store, SchemeSQLite); ok && !filepath.IsAbs(path) {
		*store = SchemeSQLite + filepath.Join(folder, path)
	}
}

// Timing has the settings of all servers about when connections and addresses close.
type Timing struct {
	// IdleTimeout is how long a connection stays open after an answer. It must be longer than a proxy's or balancer's
	// own limit, mostly 60s. Otherwise the proxy now and then sends a request on a connection that closes. Default 2m.
	// Range 1s to 1h.
	IdleTimeout time.Duration `yaml:"idle_timeout"`

	// DrainDelay is how long the program still serves after SIGTERM or an interrupt, while readiness fails, so that a
	// balancer stops sending requests here before the addresses close. It should cover a few of the balancer's checks.
	// Default 0s. Range 0s to 10m.
	DrainDelay time.Duration `yaml:"drain_delay"`
}

func (c *Timing) prepare() error {
	Default(&c.IdleTimeout, 2*time.Minute)
	if c.IdleTimeout < time.Second || c.IdleTimeout > time.Hour {
		return invalid.Field("idle_timeout", c.IdleTimeout.String(), "1s to 1h")
	}
	if c.DrainDelay < 0 || c.DrainDelay > 10*time.Minute {
		return invalid.Field("drain_delay", c.DrainDelay.String(), "0s to 10m")
	}
	return nil
}

// Prepare checks the two listening addresses of a configuration, of which each may be empty, the host names of the
// admin address, and timing, whose defaults it sets. It sets a nil clock to time.Now, and a nil log to one that
// discards everything. It makes the log [Coarse].
func Prepare(listen, admin string, adminHosts []string, timing *Timing, clock *func() time.Time,
	log **slog.Logger) error {
	if *clock == nil {
		*clock = time.Now
	}
	Default(log, slog.New(slog.DiscardHandler))
	*log = Coarse(*log)
	return errors.Join(checkAddress("listen", listen), checkAddress("admin", admin),
		display.CheckHosts(settingAdminHosts, adminHosts), timing.prepare())
}

// ClientSettings points to the settings that all servers share to which clients connect.
type ClientSettings struct {
	ForwardedHeader *string        // the header in which trusted proxies name the client
	MaxConnections  *int           // maximum number of open connections
	Skew            *time.Duration // maximum error of a client's clock
}

// MaxSkew is the maximum and the default of [ClientSettings.Skew].
const MaxSkew = 5 * time.Minute

// SetDefaults sets fields that are zero to their defaults.
func (s ClientSettings) SetDefaults() {
	Default(s.ForwardedHeader, headerXFF)
	Default(s.MaxConnections, 4096)
	Default(s.Skew, MaxSkew)
}

// CheckForwardedHeader returns an error unless the header is X-Forwarded-For or Forwarded.
func (s ClientSettings) CheckForwardedHeader() error {
	if h := *s.ForwardedHeader; h != headerXFF && h != headerForwarded {
		return invalid.Field("forwarded_header", strconv.Quote(h), headerXFF+" or "+headerForwarded)
	}
	return nil
}

// CheckMaxConnections returns an error unless the number is from 8 to 1048576.
func (s ClientSettings) CheckMaxConnections() error {
	if n := *s.MaxConnections; n < 8 || n > maxNumber {
		return invalid.Field("max_connections", strconv.Itoa(n), "8 to 1048576")
	}
	return nil
}

// CheckSkew returns an error unless the skew is from 1 ms to [MaxSkew].
func (s ClientSettings) CheckSkew() error {
	if *s.Skew < time.Millisecond || *s.Skew > MaxSkew {
		return invalid.Field("skew", s.Skew.String(), "1ms to 5m")
	}
	return nil
}

// checkAddress returns an error unless a listening address is empty or has the form host:port.
func checkAddress(field, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if address != "" && err != nil {
		return invalid.Field(field, strconv.Quote(address), "host:port, such as 127.0.0.1:8081")
	}
	return nil
}

// Default sets a field that is zero to value.
func Default[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
