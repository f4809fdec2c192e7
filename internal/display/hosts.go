package display

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/doona-dp/doona/internal/invalid"
)

// Hosts are the host names that a request to an address may have. A web page can make its own name resolve to an
// address that only its visitor reaches, and then read the answers (DNS rebinding). Such requests carry the page's
// name, so they can be refused. IP addresses and localhost are always allowed, because no name server resolves them.
// Hosts is safe for concurrent use.
type Hosts struct {
	setting string
	names   []string
	log     *slog.Logger

	mu     sync.Mutex // guards logged
	logged []string   // refused names that were logged
}

// maxLogged limits how many refused names are logged, because a page may try any number.
const maxLogged = 8

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$`)

// CheckHosts returns an error unless all names of a setting are host names.
func CheckHosts(setting string, names []string) error {
	for _, name := range names {
		if _, err := netip.ParseAddr(name); err == nil || len(name) > 253 || !hostName.MatchString(name) {
			return invalid.Field(setting, fmt.Sprintf("%q", name),
				"host names such as stats.example, without scheme and port; IP addresses and localhost need none")
		}
	}
	return nil
}

// NewHosts allows the host name in the listening address, if it has one, and the names of a setting. It logs refused
// names to log.
func NewHosts(setting string, log *slog.Logger, listen string, names []string) *Hosts {
	h := &Hosts{setting: setting, log: log, names: []string{"localhost"}}
	if name, _, err := net.SplitHostPort(listen); err == nil && name != "" {
		names = append(slices.Clone(names), name)
	}
	for _, name := range names {
		h.names = append(h.names, strings.ToLower(name))
	}
	return h
}

// allows reports whether a Host header is an IP address or an allowed name. It also allows an empty header: browsers
// always send a name, and other programs cannot be tricked.
func (h *Hosts) allows(host string) bool {
	if host == "" {
		return true
	}
	name := host
	if before, _, err := net.SplitHostPort(host); err == nil {
		name = before
	}
	inner, _ := strings.CutPrefix(name, "[")
	if _, err := netip.ParseAddr(strings.TrimSuffix(inner, "]")); err == nil {
		return true
	}
	return slices.Contains(h.names, strings.ToLower(strings.TrimSuffix(name, ".")))
}

// Guard answers requests for names that are not allowed with status 421. The answer says which setting allows a name.
func (h *Hosts) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.allows(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		h.logRefused(r.Host)
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, fmt.Sprintf("host %.100q is not allowed here: want an IP address, localhost, or a name of the "+
			"setting %s", r.Host, h.setting), http.StatusMisdirectedRequest)
	})
}

// logRefused logs each refused name once, and stops after maxLogged names.
func (h *Hosts) logRefused(host string) {
	text := fmt.Sprintf("%.100q", host)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.logged) == maxLogged || slices.Contains(h.logged, text) {
		return
	}
	h.logged = append(h.logged, text)
	h.log.Warn("request refused: its host is not allowed", "host", text, "do",
		"name it in "+h.setting+" if it is yours; else a page has tried to read this address by DNS rebinding")
}
