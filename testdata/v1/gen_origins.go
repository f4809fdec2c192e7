//go:build ignore

package main

import (
	"log"
	"slices"
	"strings"

	"github.com/doona-dp/doona/wire/task"
)

// listable holds origins that a task may list. Browsers send those without a * unchanged.
var listable = []string{
	"https://example.org", "https://example.org:8443", "http://localhost", "http://localhost:5173",
	"https://localhost:80", "http://127.0.0.1", "http://127.0.0.1:443", "http://[::1]:8080", "https://[2001:db8::1]",
	"https://[2001:db8:0:1:1:1:1:1]", "https://[2001:db8:0:0:1::]", "https://[1:0:0:2::3]", "https://[::ffff:102:304]",
	"https://[::]", "https://xn--bcher-kva.example", "https://a_b.example", "https://1.2.3.4.example",
	"https://0x1g.example", "https://" + strings.Repeat("a", 63) + ".example", "https://*.example.org",
	"https://*.example.org:8443", "http://*.localhost:8080", "https://*.xn--bcher-kva.example",
	"chrome-extension://aapbdbdomjkkjkaonfhkkikfgjllcleb", "moz-extension://5e9a4aa1-8c14-4d3a-bc75-9e3f9a4a1f10",
	"safari-web-extension://5E9A4AA1-8C14-4D3A-BC75-9E3F9A4A1F10", "capacitor://localhost", "ionic://localhost",
	"tauri://localhost", "app://.", "app://my.app:8080", "null",
}

// unlistable holds texts that a task may not list, each with the reason.
var unlistable = [][2]string{
	{"", "nothing"}, {"Null", "another word than null"}, {"example.org", "no scheme"}, {"://example.org", "no scheme"},
	{"//example.org", "no scheme"}, {"https:/example.org", "one slash"}, {"https://", "no host"},
	{"https://example.org/", "a path"}, {"https://example.org/a", "a path"}, {"https://example.org?a", "a query"},
	{"https://example.org#a", "a fragment"}, {"https://user@example.org", "a user"}, {"HTTPS://example.org", "upper case"},
	{"https://Example.org", "upper case"}, {"https://example.org:443", "the default port"},
	{"http://example.org:80", "the default port"}, {"https://example.org:", "no port"},
	{"https://example.org:0", "port 0"}, {"https://example.org:65536", "a port above 65535"},
	{"https://example.org:08443", "a zero before the port"}, {"https://example.org:+1", "a sign before the port"},
	{"https://example.org.", "an empty label"}, {"https://.example.org", "an empty label"},
	{"https://a..example", "an empty label"}, {"https://" + strings.Repeat("a", 64) + ".example", "a label of 64"},
	{"https://b\u00fccher.example", "no punycode"}, {"https://a%20b.example", "an escape"}, {"https://a b", "a space"},
	{"https://a,https://b", "two origins"}, {"https://a https://b", "two origins"}, {"https://*", "every host"},
	{"https://*.", "every host"}, {"*", "everything"}, {"null null", "two origins"},
	{"https://a.*.example", "a * in the middle"}, {"https://*a.example", "a part of a label"},
	{"https://*.*.example", "two of them"}, {"*://example.org", "any scheme"}, {"https://example.org:*", "any port"},
	{"https://*.1.2.3.4", "below an address"}, {"https://*.[::1]", "below an address"},
	{"chrome-extension://*.a", "below an extension"}, {"https://1.2.3", "an address in another form"},
	{"https://1.2.3.256", "no address"}, {"https://01.2.3.4", "an address in another form"},
	{"https://0x7f.1", "an address in another form"}, {"https://2130706433", "an address in another form"},
	{"https://a.0x7f", "no address"}, {"https://[::1", "no bracket"}, {"https://::1", "no bracket"},
	{"https://[0:0:0:0:0:0:0:1]", "an address in another form"}, {"https://[::0001]", "an address in another form"},
	{"https://[::A]", "an address in another form"}, {"https://[1::2::3]", "two gaps"},
	{"https://[1:2:3:4:5:6:7]", "seven groups"}, {"https://[1:2:3:4:5:6:7:8:9]", "nine groups"},
	{"https://[1:2:3:4:5:6:7::]", "a gap of one group"}, {"https://[1::3:0:0:0:7]", "a shorter gap cut"},
	{"https://[1:0:0:4::7:8]", "the second of two gaps cut"}, {"https://[::1.2.3.4]", "an address in another form"},
	{"https://[fe80::1%25eth0]", "a zone"}, {"https://[]", "no address"}, {"file://", "a file, which is null"},
	{"file://host", "a file, which is null"}, {"app://", "no host"}, {"app://a/b", "a path"}, {"9p://host", "no scheme"},
	{"https://" + strings.Repeat("a.", 122) + "a:65", "256 characters"},
}

// origins writes which origins a task may list, and which Origin headers they match.
func origins() {
	draft := *newWorld(task.KEMX25519, 2).Task
	valid := func(origin string) bool {
		draft.Clients.Origins = []string{origin}
		return draft.Validate() == nil
	}
	for _, origin := range listable {
		if !valid(origin) {
			log.Fatalf("%q is not valid", origin)
		}
	}
	var bad []object
	for _, c := range unlistable {
		if valid(c[0]) {
			log.Fatalf("%q is valid", c[0])
		}
		bad = append(bad, object{"origin": c[0], "description": c[1]})
	}
	listed := []string{"https://*.example.org:8443", "https://example.org", "capacitor://localhost", "null"}
	slices.Sort(listed)
	var answers []object
	for _, c := range []struct {
		origin string
		ok     bool
	}{
		{"https://example.org", true}, {"https://a.example.org:8443", true}, {"https://a.b.example.org:8443", true},
		{"capacitor://localhost", true}, {"null", true}, {"http://example.org", false}, {"https://example.org:8443", false},
		{"https://a.example.org", false}, {"https://example.org:443", false}, {"https://example.org.", false},
		{"https://Example.org", false}, {"https://aexample.org:8443", false}, {"https://.example.org:8443", false},
		{"https://other.example/.example.org:8443", false}, {"https://a@b.example.org:8443", false},
		{"http://a.example.org:8443", false}, {"https://a.example.org:84430", false},
		{"https://*.example.org:8443", false}, {"https://example.org https://example.org", false}, {"", false},
		{"https://" + strings.Repeat("a.", 113) + "bbbb.example.org:8443", true},
		{"https://" + strings.Repeat("a.", 113) + "bbbbb.example.org:8443", false}, {"ionic://localhost", false}, {"https://example.org.evil.example", false},
	} {
		draft.Clients.Origins = listed
		if got := draft.Clients.Allows(c.origin); got != c.ok {
			log.Fatalf("%q: %v", c.origin, got)
		}
		answers = append(answers, object{"origin": c.origin, "allowed": c.ok})
	}
	write("origin", object{"valid": listable, "invalid": bad, "listed": listed, "answers": answers})
}
