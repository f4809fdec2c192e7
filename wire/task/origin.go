package task

import (
	"math"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
)

// Limits on the origins of a task. A site with its languages, apps and test copies has a few dozen origins. A host name
// has at most 253 characters, and no real site has an origin longer than maxOrigin. All origins together take 16 kB,
// less than a month of keys.
const (
	maxOrigins = 64
	maxOrigin  = 255
)

// opaqueOrigin is the Origin header of a page without an origin of its own: a file, a sandboxed frame, a data: URL.
const opaqueOrigin = "null"

const wantOrigin = `scheme://host or scheme://host:port as browsers send it (lower case, no default port, no path, ` +
	`punycode), *. before the domain for all below it, or null; at most 255 characters`

// Allows reports whether the task accepts reports with this Origin header. A task without a list of origins accepts
// all. An entry *.example.org allows every name below example.org, but not example.org itself.
func (c Clients) Allows(origin string) bool {
	if len(c.Origins) == 0 {
		return true
	}
	if len(origin) > maxOrigin {
		return false
	}
	for _, listed := range c.Origins {
		if isListed(origin, listed) {
			return true
		}
	}
	return false
}

// isListed reports whether an origin equals an entry of the list, or matches the entry's wildcard.
func isListed(origin, listed string) bool {
	scheme, domain, wild := strings.Cut(listed, "://*")
	if !wild {
		return origin == listed
	}
	host, ok := strings.CutPrefix(origin, scheme+"://")
	if !ok {
		return false
	}
	labels, ok := strings.CutSuffix(host, domain)
	return ok && isDomain(labels)
}

// ValidateOrigins returns an error unless [Clients.Origins] is valid.
func (t *Task) ValidateOrigins() error {
	origins := t.Clients.Origins
	if len(origins) > maxOrigins {
		return invalid.Field("clients.origins", strconv.Itoa(len(origins))+" origins",
			"at most "+strconv.Itoa(maxOrigins))
	}
	for i, origin := range origins {
		if !isOrigin(origin) {
			return invalid.Field("clients.origins", invalid.Quote(origin), wantOrigin)
		}
		if i > 0 && origins[i-1] >= origin {
			return invalid.Field("clients.origins", invalid.Quote(origin), "origins in ascending order, each once")
		}
	}
	return nil
}

// isOrigin reports whether s can be the value of an Origin header, or such a value with *. before the domain.
func isOrigin(s string) bool {
	if s == opaqueOrigin {
		return true
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || len(s) > maxOrigin || !isScheme(scheme) {
		return false
	}
	host, port, hasPort := rest, "", false
	if colon := strings.LastIndexByte(rest, ':'); colon > strings.LastIndexByte(rest, ']') {
		host, port, hasPort = rest[:colon], rest[colon+1:], true
	}
	if hasPort && !isPort(scheme, port) {
		return false
	}
	if scheme != "http" && scheme != "https" { // An app or an extension: browsers do not normalize its host.
		return host != "" && strings.Trim(host, lower+upper+digits+".-_~") == ""
	}
	if domain, wild := strings.CutPrefix(host, "*."); wild {
		return isDomain(domain) && !isNumeric(domain)
	}
	if isNumeric(host) {
		return isIPv4(host)
	}
	return isDomain(host) || isIPv6(host)
}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

// isScheme reports whether s is a scheme of an origin. "file" is not: browsers send null for it, because a file has no
// host.
func isScheme(s string) bool {
	return s != "" && s != "file" && strings.Trim(s[:1], lower) == "" && strings.Trim(s, lower+digits+"+-.") == ""
}

func isPort(scheme, port string) bool {
	n, ok := decimal.Uint(port, 10, math.MaxUint16)
	return ok && n > 0 && !(scheme == "http" && n == 80) && !(scheme == "https" && n == 443)
}

// isDomain reports whether s is a host name: labels separated by dots, also in punycode.
func isDomain(s string) bool {
	for _, label := range strings.Split(s, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, lower+digits+"-_") != "" {
			return false
		}
	}
	return true
}

// isNumeric reports whether browsers would parse s as an IPv4 address, because its last label is a number.
func isNumeric(s string) bool {
	last := s[strings.LastIndexByte(s, '.')+1:]
	return isDigits(last) || strings.HasPrefix(last, "0x") && strings.Trim(last[2:], digits+"abcdef") == ""
}

func isIPv4(s string) bool {
	parts := strings.Split(s, ".")
	for _, part := range parts {
		if _, ok := decimal.Uint(part, 10, 255); !ok {
			return false
		}
	}
	return len(parts) == 4
}

// isIPv6 reports whether s is a bracketed IPv6 address in the only form that browsers write, with the longest run of
// zeros abbreviated.
func isIPv6(s string) bool {
	inner, ok := strings.CutPrefix(s, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	head, tail, gap := strings.Cut(inner, "::")
	groups, okHead := groupsOf(head, gap)
	rest, okTail := groupsOf(tail, true)
	missing := 8 - len(groups) - len(rest)
	if !ok || !closed || !okHead || !okTail || gap && missing < 2 || !gap && missing != 0 {
		return false
	}
	at := -1
	if gap {
		at = len(groups)
	}
	groups = append(append(groups, make([]uint16, missing)...), rest...)
	first, length := longestZeros(groups)
	return at == first && (!gap || length == missing)
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// groupsOf parses groups of hexadecimal digits, separated by colons. Zero groups are valid only if mayBeEmpty.
func groupsOf(s string, mayBeEmpty bool) (groups []uint16, ok bool) {
	if s == "" {
		return nil, mayBeEmpty
	}
	for _, text := range strings.SplitN(s, ":", 9) {
		v, ok := decimal.Uint(text, 16, math.MaxUint16)
		if !ok {
			return nil, false
		}
		groups = append(groups, uint16(v))
	}
	return groups, len(groups) <= 8
}

// longestZeros returns the start and length of the longest run of at least two zeros, the first of equal ones. first is
// -1 if there is none.
func longestZeros(groups []uint16) (first, length int) {
	first, length = -1, 1
	for i := 0; i < len(groups); i++ {
		from := i
		for i < len(groups) && groups[i] == 0 {
			i++
		}
		if i-from > length {
			first, length = from, i-from
		}
	}
	return first, length
}
