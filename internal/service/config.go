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
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/invalid"
)

// SchemeSQLite opens the description of a store in a SQLite file.
const SchemeSQLite = "sqlite:"

// ReadConfig reads a YAML file into a struct. Unknown keys are errors.
func ReadConfig(path string, into any) error {
	in, err := readConfig(path)
	if err != nil {
		return fmt.Errorf("couldn't read the configuration: %w", err)
	}
	if err := yaml.NewDecoder(bytes.NewReader(in), yaml.Strict()).Decode(into); err != nil {
		var wrong *yaml.TypeError
		if errors.As(err, &wrong) && wrong.DstType == reflect.TypeFor[time.Duration]() {
			return fmt.Errorf("couldn't read %s: %w\nWant a number with its unit, such as 5s, 10m or 48h", path, err)
		}
		return fmt.Errorf("couldn't read %s: %w", path, err)
	}
	return nil
}

// maxConfig is the most bytes of a configuration: a thousand tasks take 200 kB.
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
	return in, err
}

// Resolve makes the relative ones of some paths start at folder; empty ones stay empty.
func Resolve(folder string, paths ...*string) {
	for _, path := range paths {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(folder, *path)
		}
	}
}

// ResolveStore is Resolve for the path in the description of a SQLite store.
func ResolveStore(folder string, store *string) {
	if path, ok := strings.CutPrefix(*store, SchemeSQLite); ok && !filepath.IsAbs(path) {
		*store = SchemeSQLite + filepath.Join(folder, path)
	}
}

// Prepare checks the two addresses of a configuration to listen on, which may be empty, and the names by which the
// second may be asked, and sets its clock and its log where there are none: time.Now, and a log that nobody reads. The
// log becomes a [Coarse] one.
func Prepare(listen, admin string, adminHosts []string, clock *func() time.Time, log **slog.Logger) error {
	if *clock == nil {
		*clock = time.Now
	}
	Default(log, slog.New(slog.DiscardHandler))
	*log = Coarse(*log)
	return errors.Join(checkAddress("listen", listen), checkAddress("admin", admin),
		display.CheckHosts(settingAdminHosts, adminHosts))
}

// ClientSettings point at what the configuration of each server has that takes requests from clients.
type ClientSettings struct {
	ForwardedHeader *string        // the one header that trusted proxies set
	MaxConnections  *int           // how many may be open
	Skew            *time.Duration // by how much clients' clocks may differ
}

// MaxSkew is the most by which clients' clocks may differ.
const MaxSkew = 5 * time.Minute

// SetDefaults fills in what is not set.
func (s ClientSettings) SetDefaults() {
	Default(s.ForwardedHeader, headerXFF)
	Default(s.MaxConnections, 4096)
	Default(s.Skew, MaxSkew)
}

// CheckForwardedHeader is an error unless the header is one that proxies set.
func (s ClientSettings) CheckForwardedHeader() error {
	if h := *s.ForwardedHeader; h != headerXFF && h != headerForwarded {
		return invalid.Field("forwarded_header", strconv.Quote(h), headerXFF+" or "+headerForwarded)
	}
	return nil
}

// CheckMaxConnections is an error unless the number is in its range.
func (s ClientSettings) CheckMaxConnections() error {
	if n := *s.MaxConnections; n < 8 || n > 1<<20 {
		return invalid.Field("max_connections", strconv.Itoa(n), "8 to 1048576")
	}
	return nil
}

// CheckSkew is an error unless the skew is in its range.
func (s ClientSettings) CheckSkew() error {
	if *s.Skew < time.Millisecond || *s.Skew > MaxSkew {
		return invalid.Field("skew", s.Skew.String(), "1ms to 5m")
	}
	return nil
}

// checkAddress is an error unless an address to listen on, if there is one, has the form host:port.
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

// Default sets a field that is not set.
func Default[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
