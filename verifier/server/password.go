package server

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/crypto/argon2"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
)

// Range of a password's length in bytes.
const (
	minPassword = 12
	maxPassword = 1024
)

// Parameters of new hashes: the least that OWASP recommends for argon2id, so that a small machine can check one.
const (
	hashMemory = 19 << 10 // KiB
	hashPasses = 2
	hashLanes  = 1
	saltBytes  = 16
	sumBytes   = 32
)

// Largest parameters of a stored hash. A larger one could exhaust the machine at each sign-in.
const (
	maxMemory = 1 << 20 // KiB
	maxPasses = 64
	maxLanes  = 16
)

// passwordHash is the argon2id hash of a password.
type passwordHash struct {
	memory, passes uint32
	lanes          uint8
	salt, sum      []byte
}

// HashPassword returns the content of a password file: a line with the argon2id hash of a password, in the PHC format.
func HashPassword(password string) ([]byte, error) {
	if n := len(password); n < minPassword || n > maxPassword {
		return nil, invalid.Field("password", strconv.Itoa(n)+" bytes", fmt.Sprintf("%d to %d bytes", minPassword,
			maxPassword))
	}
	h := &passwordHash{memory: hashMemory, passes: hashPasses, lanes: hashLanes, salt: make([]byte, saltBytes)}
	rand.Read(h.salt)
	return fmt.Appendf(nil, "$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s\n", argon2.Version, h.memory, h.passes, h.lanes,
		encodeHash(h.salt), encodeHash(h.of(password, sumBytes))), nil
}

func encodeHash(b []byte) string { return base64.RawStdEncoding.EncodeToString(b) }

func (h *passwordHash) of(password string, size int) []byte {
	return argon2.IDKey([]byte(password), h.salt, h.passes, h.memory, h.lanes, uint32(size))
}

func (h *passwordHash) matches(password string) bool {
	return subtle.ConstantTimeCompare(h.of(password, len(h.sum)), h.sum) == 1
}

var hashForm = regexp.MustCompile(`^\$argon2id\$v=19\$m=(\d{1,7}),t=(\d{1,2}),p=(\d{1,2})\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{22,86})\n?$`)

// parseHash reads the content of a password file.
func parseHash(line string) (*passwordHash, error) {
	m := hashForm.FindStringSubmatch(line)
	if m == nil {
		return nil, invalid.Field("password_file", "another content", "the file that 'verifier password' writes")
	}
	var numbers [3]uint64
	for i, limit := range []uint64{maxMemory, maxPasses, maxLanes} {
		n, err := strconv.ParseUint(m[i+1], 10, 32)
		if err != nil || n < 1 || n > limit {
			return nil, invalid.Field("password_file", fmt.Sprintf("m, t or p of %s", m[i+1]),
				fmt.Sprintf("m of 1 to %d, t of 1 to %d and p of 1 to %d", maxMemory, maxPasses, maxLanes))
		}
		numbers[i] = n
	}
	h := &passwordHash{memory: uint32(numbers[0]), passes: uint32(numbers[1]), lanes: uint8(numbers[2])}
	var err error
	if h.salt, err = base64.RawStdEncoding.DecodeString(m[4]); err == nil {
		h.sum, err = base64.RawStdEncoding.DecodeString(m[5])
	}
	if err != nil {
		return nil, invalid.Field("password_file", "another content", "the file that 'verifier password' writes")
	}
	return h, nil
}

func loadPassword(path string) (*passwordHash, error) {
	raw, err := durable.ReadPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the password: %w", err)
	}
	h, err := parseHash(string(raw))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

// NewPassword returns a random password of 130 bits in groups of letters and digits.
func NewPassword() string {
	text := strings.ToLower(rand.Text())
	var groups []string
	for ; len(text) > 5; text = text[5:] {
		groups = append(groups, text[:5])
	}
	return strings.Join(append(groups, text), "-")
}
