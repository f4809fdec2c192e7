package server

import (
	"crypto/rand"
	"crypto/sha256"
	"maps"
	"sync"
	"time"
)

const (
	sessionLength = 12 * time.Hour
	maxSessions   = 256 // a further sign-in ends the oldest session
)

// sessionTag is the hash of a session's secret, the cookie's value.
type sessionTag [sha256.Size]byte

func tagOf(value string) sessionTag { return sha256.Sum256([]byte(value)) }

// sessions are the sign-ins that are valid, by a hash of the cookie's value. They are only in memory, so a restart ends
// all. It is safe for concurrent use.
type sessions struct {
	now func() time.Time

	mu    sync.Mutex // guards until
	until map[sessionTag]time.Time
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, until: map[sessionTag]time.Time{}}
}

// begin returns the value of a new session's cookie, which has 130 random bits.
func (s *sessions) begin() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	maps.DeleteFunc(s.until, func(_ sessionTag, until time.Time) bool { return !now.Before(until) })
	if len(s.until) >= maxSessions {
		s.endOldest()
	}
	value := rand.Text()
	s.until[tagOf(value)] = now.Add(sessionLength)
	return value
}

// endOldest ends a session. The caller holds s.mu.
func (s *sessions) endOldest() {
	var oldest sessionTag
	var first time.Time
	for tag, until := range s.until {
		if first.IsZero() || until.Before(first) {
			oldest, first = tag, until
		}
	}
	delete(s.until, oldest)
}

// has reports whether a cookie's value is of a valid session. The map compares hashes, so its time tells nothing.
func (s *sessions) has(value string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.until[tagOf(value)]
	return ok && s.now().Before(until)
}

func (s *sessions) end(value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.until, sha256.Sum256([]byte(value)))
}
