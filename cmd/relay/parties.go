package main

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// maxTasks is the largest limit of [relay.OwnerConfig].
const maxTasks = 1024

// invite asks an operator to run the second relay of a site's tasks.
type invite struct {
	site  string
	owner task.SignKey
	first task.Party // the first relay
	tasks int
}

// answer says which relay accepted an invite.
type answer struct {
	invite string // its fingerprint, without spaces
	second task.Party
	tasks  int
}

var siteName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func (i *invite) text() string {
	return inviteText.format(i.site, taskfile.FormatKey(i.owner), formatRelay(i.first), strconv.Itoa(i.tasks))
}

func (a *answer) text() string {
	return answerText.format(a.invite, formatRelay(a.second), strconv.Itoa(a.tasks))
}

func newInvite(site, owner, first, tasks string) (i *invite, err error) {
	if !siteName.MatchString(site) {
		return nil, invalid.Field("site", invalid.Quote(site), "1 to 64 letters, digits, dots, hyphens and underscores")
	}
	i = &invite{site: site}
	if i.owner, err = taskfile.ParseKey("owner", owner); err != nil {
		return nil, err
	}
	if i.first, err = parseRelay(first); err != nil {
		return nil, err
	}
	if i.tasks, err = parseTasks(tasks); err != nil {
		return nil, err
	}
	return i, checkApart("the owner and the first relay", i.owner, i.first.SignKey)
}

func parseInvite(text string) (*invite, error) {
	values, err := inviteText.parse(text)
	if err != nil {
		return nil, err
	}
	i, err := newInvite(values[0], values[1], values[2], values[3])
	if err != nil {
		return nil, fmt.Errorf("the invite: %w", err)
	}
	return i, nil
}

func parseAnswer(text string) (*answer, error) {
	values, err := answerText.parse(text)
	if err != nil {
		return nil, err
	}
	a := &answer{invite: values[0]}
	if a.second, err = parseRelay(values[1]); err == nil {
		a.tasks, err = parseTasks(values[2])
	}
	if err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	return a, nil
}

// check returns an error unless the second relay can serve with the invite's parties.
func (i *invite) check(second task.Party) error {
	if err := checkApart("the two relays", i.first.SignKey, second.SignKey); err != nil {
		return err
	}
	if err := checkApart("the owner and the second relay", i.owner, second.SignKey); err != nil {
		return err
	}
	one, err := domainOf(i.first.URL)
	if err != nil {
		return err
	}
	two, err := domainOf(second.URL)
	if err == nil && one == two {
		err = fmt.Errorf("%s and %s belong to one domain, %s: want two relays of different operators", i.first.URL,
			second.URL, one)
	}
	return err
}

func checkApart(who string, one, two task.SignKey) error {
	if one == two {
		return fmt.Errorf("%s have one key, %s: want a key for each", who, taskfile.FormatKey(one))
	}
	return nil
}

// domainOf returns the registrable domain of an address's host, such as example.org for https://relay.example.org:8443.
// An IP address, and a host without such a domain, as localhost, are their own.
func domainOf(address string) (string, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Hostname() == "" {
		return "", invalid.Field("relay", invalid.Quote(address), "a URL with a host")
	}
	host := strings.ToLower(strings.TrimSuffix(parsed.Hostname(), "."))
	domain, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		return host, nil
	}
	return domain, nil
}

// partyURL matches the addresses that a task may name. TestAddresses compares it with the checks of a task, which are
// in the modules for pages and so export little.
var partyURL = regexp.MustCompile(`^https?://[a-z0-9.\-\[\]_~]([a-z0-9.\-:\[\]/_~]*[a-z0-9.\-:\[\]_~])?$`)

func checkURL(field, address string) error {
	if len(address) > 256 || !partyURL.MatchString(address) {
		return invalid.Field(field, invalid.Quote(address), "http:// or https:// and a host in lower case, such as "+
			"https://relay.example.org")
	}
	return nil
}

// formatRelay returns a relay as `doona task new --relay` takes it.
func formatRelay(p task.Party) string { return p.URL + "," + taskfile.FormatKey(p.SignKey) }

func parseRelay(text string) (p task.Party, err error) {
	address, key, ok := strings.Cut(text, ",")
	if !ok {
		return p, invalid.Field("relay", invalid.Quote(text), "URL,ed25519:KEY")
	}
	p.URL = address
	if err := checkURL("relay", p.URL); err != nil {
		return p, err
	}
	if _, err := domainOf(address); err != nil {
		return p, err
	}
	p.SignKey, err = taskfile.ParseKey("relay", key)
	return p, err
}

func parseTasks(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxTasks {
		return 0, invalid.Field("tasks", invalid.Quote(text), fmt.Sprintf("1 to %d", maxTasks))
	}
	return n, nil
}
