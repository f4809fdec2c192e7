// Package problem defines the errors that relays and issuers answer with: application/problem+json documents (RFC
// 9457). Their type is "urn:doona:error:" followed by a name from the list below.
package problem

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// prefix begins the type of every problem; the name follows.
const prefix = "urn:doona:error:"

// ContentType is the media type of a problem.
const ContentType = "application/problem+json"

// Name identifies a problem. docs/relay.md says for each name what a client should do.
type Name string

// The problems of relays and issuers.
const (
	NotFound        Name = "not-found"         // No such resource or method.
	UnknownTask     Name = "unknown-task"      // The relay does not serve this task.
	NotIngress      Name = "not-ingress"       // This relay is not the task's first relay, which accepts the reports.
	SetOnly         Name = "set-only"          // The task is a table of a set, which takes no single reports.
	EpochNotOpen    Name = "epoch-not-open"    // The epoch has not begun; the same bytes may be sent later.
	EpochClosed     Name = "epoch-closed"      // The epoch is over; the report cannot be accepted any more.
	MediaType       Name = "media-type"        // The body is not application/msgpack.
	TooLarge        Name = "too-large"         // The body is longer than any report of the task.
	Malformed       Name = "malformed"         // The request, or the content of the envelope, violates the task's form.
	DoesNotOpen     Name = "does-not-open"     // The envelope is sealed to another key, task or epoch, or is damaged.
	Limit           Name = "limit"             // The client's quota for the epoch is used up.
	ForeignOrigin   Name = "foreign-origin"    // The task accepts no reports from pages of this origin.
	TokenMissing    Name = "token-missing"     // The task requires a token with every report.
	TokenInvalid    Name = "token-invalid"     // The token is not one of this task, epoch and issuer.
	Replayed        Name = "replayed"          // Another client has sent this envelope, or one with the same tag.
	NotSealed       Name = "not-sealed"        // The batch does not exist yet.
	Complete        Name = "epoch-complete"    // The epoch is over and it has no batch of this number.
	Confirmed       Name = "confirmed"         // The next hop confirmed the batch; its ciphertexts are deleted.
	Unauthorized    Name = "unauthorized"      // Not signed by the next hop or the owner, or no valid API key.
	Overloaded      Name = "overloaded"        // The server lacks capacity; try again after Retry-After.
	SlowDown        Name = "slow-down"         // The client has too many open requests; try again after Retry-After.
	ClockInDoubt    Name = "clock-in-doubt"    // No other clock confirms the relay's; try again after Retry-After.
	StateRolledBack Name = "state-rolled-back" // The relay detected a state rollback and has stopped.
	EpochEnded      Name = "epoch-ended"       // The operator ended the epoch after a state rollback.
	WrongPosition   Name = "wrong-position"    // The stream already has this position, or lacks the previous one.
	OwnerTaskLimit  Name = "owner-task-limit"  // The owner has as many tasks at this relay as its operator approved.
	Internal        Name = "internal"          // The relay failed; it stored nothing.
)

var kinds = map[Name]struct {
	status int
	title  string
}{
	NotFound:        {http.StatusNotFound, "no such resource or method"},
	UnknownTask:     {http.StatusNotFound, "the task is not served here"},
	NotIngress:      {http.StatusNotFound, "this relay is not the task's first"},
	SetOnly:         {http.StatusNotFound, "the task takes reports only through its set"},
	EpochNotOpen:    {http.StatusConflict, "the epoch is not open yet"},
	EpochClosed:     {http.StatusGone, "the epoch is over"},
	MediaType:       {http.StatusUnsupportedMediaType, "the body is of another media type than is wanted here"},
	TooLarge:        {http.StatusRequestEntityTooLarge, "longer than anything that is wanted here"},
	Malformed:       {http.StatusBadRequest, "not of the form the task demands"},
	DoesNotOpen:     {http.StatusBadRequest, "the envelope does not open"},
	Limit:           {http.StatusTooManyRequests, "nothing further for this client in this epoch"},
	ForeignOrigin:   {http.StatusForbidden, "the task takes no reports of pages of this origin"},
	TokenMissing:    {http.StatusUnauthorized, "the report carries no token"},
	TokenInvalid:    {http.StatusUnauthorized, "not a token of this task, epoch and issuer"},
	Replayed:        {http.StatusConflict, "another client has sent this report"},
	NotSealed:       {http.StatusNotFound, "the batch is not sealed yet"},
	Complete:        {http.StatusGone, "the epoch has no batch of this number"},
	Confirmed:       {http.StatusGone, "the batch was confirmed and deleted"},
	Unauthorized:    {http.StatusForbidden, "not signed by the next hop, or without a key that is valid here"},
	Overloaded:      {http.StatusServiceUnavailable, "too much to do"},
	SlowDown:        {http.StatusTooManyRequests, "too much of this network at a time"},
	ClockInDoubt:    {http.StatusServiceUnavailable, "the time is not known here"},
	StateRolledBack: {http.StatusServiceUnavailable, "the relay detected a state rollback and has stopped"},
	EpochEnded:      {http.StatusGone, "the epoch was ended by the relay's operator"},
	WrongPosition:   {http.StatusConflict, "not the next task of the stream"},
	OwnerTaskLimit:  {http.StatusConflict, "the owner has as many tasks as the operator allows"},
	Internal:        {http.StatusInternalServerError, "the server failed"},
}

// Problem is an error as one party sends it to another.
type Problem struct {
	Name       Name
	Status     int           // HTTP status.
	Title      string        // For people; fixed for each name.
	Detail     string        // For people; may be empty.
	RetryAfter time.Duration // When to try again; 0 if unknown or never.
	Now        time.Time     // The sender's clock, to the minute; zero if unknown.
}

type document struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Now    int64  `json:"now,omitempty"` // Unix seconds, whole minutes
}

// New returns the problem with a name. Its detail is formatted as by fmt.Sprintf.
func New(name Name, format string, args ...any) *Problem {
	k := kinds[name]
	return &Problem{Name: name, Status: k.status, Title: k.title, Detail: fmt.Sprintf(format, args...)}
}

// Retry sets when the client may try again, rounded up to whole seconds.
func (p *Problem) Retry(after time.Duration) *Problem {
	p.RetryAfter = (after + time.Second - 1).Truncate(time.Second)
	return p
}

// At adds the sender's time, to the minute. A client whose report is for another epoch can compare it with its own
// clock.
func (p *Problem) At(now time.Time) *Problem {
	p.Now = now.Truncate(time.Minute).Round(0)
	return p
}

// Error returns the title and the detail.
func (p *Problem) Error() string {
	if p.Name == "" {
		return fmt.Sprintf("HTTP status %d without a problem document, perhaps from a proxy in between", p.Status)
	}
	if p.Detail == "" {
		return fmt.Sprintf("%s: %s", p.Name, p.Title)
	}
	return fmt.Sprintf("%s: %s: %s", p.Name, p.Title, p.Detail)
}

// Is reports whether target is a problem with the same name, for errors.Is.
func (p *Problem) Is(target error) bool {
	other, ok := target.(*Problem)
	return ok && other.Name == p.Name
}

// Write sends the problem as the HTTP response, which caches must not store.
func (p *Problem) Write(w http.ResponseWriter) {
	header := w.Header()
	header.Set("Content-Type", ContentType)
	header.Set("Cache-Control", "no-store")
	header.Set("Access-Control-Expose-Headers", "Retry-After, WWW-Authenticate") // so that pages may read these headers
	if p.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int(p.RetryAfter/time.Second)))
	}
	w.WriteHeader(p.Status)
	d := document{Type: prefix + string(p.Name), Title: p.Title, Status: p.Status, Detail: p.Detail}
	if !p.Now.IsZero() {
		d.Now = p.Now.Unix()
	}
	json.NewEncoder(w).Encode(&d)
}

// Limits on what Read accepts from another party.
const (
	maxDocument = 4096           // bytes of the document
	maxText     = 200            // bytes of the detail
	maxRetry    = 24 * time.Hour // a longer Retry-After is cut to this
	maxNow      = 253402300799   // the last second of the year 9999; a later clock is ignored
)

// Read returns the problem in a response with an error status. If the response contains no known problem, the problem's
// name is empty. The sender may be hostile, so Read trusts little. The title is that of the name or of the HTTP status.
// The detail is cut to 200 bytes of printable text, safe for a log or a terminal. RetryAfter is 0 to 24 hours, and Now
// is before the year 10000.
func Read(resp *http.Response) *Problem {
	p := &Problem{Status: resp.StatusCode, Title: http.StatusText(resp.StatusCode)}
	in, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	var d document
	if err == nil && json.Unmarshal(in, &d) == nil {
		name := Name(strings.TrimPrefix(d.Type, prefix))
		if k, ok := kinds[name]; ok && d.Type != string(name) {
			p.Name, p.Title, p.Detail = name, k.title, printable(d.Detail)
			if d.Now > 0 && d.Now <= maxNow {
				p.Now = time.Unix(d.Now, 0)
			}
		}
	}
	if seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 63); err == nil {
		p.RetryAfter = time.Duration(min(seconds, uint64(maxRetry/time.Second))) * time.Second
	}
	return p
}

// printable returns the printable characters among the first maxText bytes of s.
func printable(s string) string {
	s = s[:min(len(s), maxText)]
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
}
