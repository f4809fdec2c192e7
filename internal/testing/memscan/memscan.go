// Package memscan searches the memory of its own process for copies of keys. It works on Linux and is for tests only.
//
// The search must not put another copy of a key into memory. So a [Needle] is masked with random bytes and compared
// byte by byte. It finds a key as raw bytes, as base64 of both alphabets anywhere in a longer text, and as hexadecimal
// digits.
package memscan

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Needle is a key to search for.
type Needle struct {
	Name  string
	forms []form
}

// form is one way in which a key can be stored in memory, masked with random bytes.
type form struct {
	name         string
	masked, mask []byte
}

// partSize is the number of key bytes that one search looks for. Longer keys are split into parts of this size.
const partSize = 32

// New makes a needle from a key of at least 32 bytes and zeroes the key. Each part of 32 bytes is found separately. The
// needle leaves out three bytes at both ends of a part: libraries may change some of them, as X25519 does.
func New(name string, key []byte) *Needle {
	n := &Needle{Name: name}
	defer clear(key)
	for at := 0; at+partSize <= len(key); at += partSize {
		end := at + partSize
		if len(key)-end < partSize {
			end = len(key)
		}
		n.addPart(key[at+3 : end-3])
	}
	return n
}

func (n *Needle) addPart(core []byte) {
	n.add("raw", len(core), func(to []byte) { copy(to, core) })
	for _, pad := range []byte{0x36, 0x5c} { // the two pads of HMAC
		n.add("padded", len(core), func(to []byte) {
			for i := range core {
				to[i] = core[i] ^ pad
			}
		})
	}
	text := make([]byte, 2*len(core))
	defer clear(text)
	hex.Encode(text, core)
	n.add("hex", len(text), func(to []byte) { copy(to, text) })
	n.add("HEX", len(text), func(to []byte) {
		for i, c := range text {
			if to[i] = c; c >= 'a' {
				to[i] -= 'a' - 'A'
			}
		}
	})
	n.add("reversed", len(core), func(to []byte) { // little endian, as in the words of a big integer
		for i, b := range core {
			to[len(core)-1-i] = b
		}
	})
	for skip := range 3 { // base64 depends on the number of preceding bytes modulo 3
		for alphabet, encoding := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding,
			"base64url": base64.RawURLEncoding} {
			part := core[skip : skip+(len(core)-skip)/3*3]
			n.add(alphabet, encoding.EncodedLen(len(part)), func(to []byte) { encoding.Encode(to, part) })
		}
	}
}

// add adds the form that write writes, of the given size in bytes.
func (n *Needle) add(name string, size int, write func(to []byte)) {
	f := form{name, make([]byte, size), make([]byte, size)}
	rand.Read(f.mask)
	write(f.masked)
	for i, b := range f.mask {
		f.masked[i] ^= b
	}
	n.forms = append(n.forms, f)
}

// at reports whether memory begins with this form.
func (f *form) at(memory []byte) bool {
	if len(memory) < len(f.masked) {
		return false
	}
	for i, b := range f.masked {
		if memory[i] != b^f.mask[i] {
			return false
		}
	}
	return true
}

// File returns needles for the private keys in a key file, in order, or for the values in a relay's secret file. It
// leaves no copy of them in memory.
func File(t testing.TB, path string) (needles []*Needle) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	in := make([]byte, info.Size())
	defer clear(in)
	_, err = io.ReadFull(f, in)
	require.NoError(t, err)
	raw := make([]byte, len(in))
	defer clear(raw)
	for rest := in; ; {
		at := bytes.Index(rest, []byte(`"private": "`))
		if tree := bytes.Index(rest, []byte(`"tree": "`)); at < 0 && tree >= 0 {
			at = tree
		}
		if at < 0 {
			return needles
		}
		rest = rest[at+bytes.IndexByte(rest[at:], ':')+3:]
		end := bytes.IndexByte(rest, '"')
		n, err := base64.RawURLEncoding.Decode(raw, rest[:end])
		require.NoError(t, err)
		name := fmt.Sprintf("%s, key %d", filepath.Base(path), len(needles))
		switch {
		case bytes.HasPrefix(rest[end:], []byte("\"\n}")) && n > 32 && raw[0] <= 2: // a tree: take its leaves' values
			for at := 0; at < n; at++ {
				if raw[at] == 1 {
					needles = append(needles, New(fmt.Sprintf("%s, value %d", filepath.Base(path), len(needles)), raw[at+1:at+33]))
					at += 32
				}
			}
		case n > 512: // an RSA key: modulus (256 bytes), then the exponent
			needles = append(needles, New(name, raw[256:512]))
		default:
			needles = append(needles, New(name, raw[:n]))
		}
		rest = rest[end:]
	}
}

// RequireGone requires that the process's memory holds no copy of the needles in gone and, to show that the scan works,
// copies of those in left. It collects garbage first, because finalizers zero forgotten keys. It retries for some
// seconds, as registers that the scheduler saved may hold a part of a key.
func RequireGone(t testing.TB, gone []*Needle, left ...*Needle) {
	t.Helper()
	require.NotEmpty(t, gone)
	var copies []string
	Retry(t, func() bool {
		found := Count(t, append(slices.Clone(gone), left...)...)
		requireIn(t, found, left)
		copies = slices.DeleteFunc(found, func(f string) bool {
			return !slices.ContainsFunc(gone, func(n *Needle) bool { return n.names(f) })
		})
		return len(copies) == 0
	})
	require.Empty(t, copies, "copies of erased keys are still in memory")
}

// patience is how long [Retry] tries.
const patience = 10 * time.Second

// Retry collects garbage and calls done until done returns true or 10 seconds are over.
func Retry(t testing.TB, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		runtime.GC()
		time.Sleep(5 * time.Millisecond) // time for finalizers
		if done() || time.Now().After(end) {
			return
		}
	}
}

// RequireFound fails the test if a needle has no copy in memory. It shows that the scan works and that the keys are in
// use.
func RequireFound(t testing.TB, needles ...*Needle) {
	t.Helper()
	require.NotEmpty(t, needles)
	requireIn(t, Count(t, needles...), needles)
}

func requireIn(t testing.TB, found []string, needles []*Needle) {
	t.Helper()
	for _, n := range needles {
		require.True(t, slices.ContainsFunc(found, n.names), "the scan did not find %s in memory", n.Name)
	}
}

// names reports whether an entry of Count's result is of this needle.
func (n *Needle) names(found string) bool { return strings.HasPrefix(found, n.Name+",") }

// Count returns one entry per copy of a needle in the process's memory: the needle's name and the form of the copy.
func Count(t testing.TB, needles ...*Needle) []string {
	t.Helper()
	var first [1 << 16][]*form // forms by their first two bytes
	name := map[*form]string{}
	longest := 0
	for _, n := range needles {
		for i := range n.forms {
			f := &n.forms[i]
			at := uint16(f.masked[0]^f.mask[0])<<8 | uint16(f.masked[1]^f.mask[1])
			first[at] = append(first[at], f)
			name[f] = n.Name + ", " + f.name
			longest = max(longest, len(f.masked))
		}
	}
	found := []string{}
	eachPart(t, longest, func(part []byte, starts int) {
		for i := 0; i < min(starts, len(part)-1); i++ {
			if next := i + len(untouched); i%len(untouched) == 0 && next < starts &&
				bytes.Equal(part[i:next], untouched[:]) {
				i += len(untouched) - 1
				continue
			}
			for _, f := range first[uint16(part[i])<<8|uint16(part[i+1])] {
				if f.at(part[i:]) {
					found = append(found, name[f])
				}
			}
		}
	})
	return found
}

// untouched is a page of zeros. The scan skips such pages, as most were never written to.
var untouched [4096]byte

// eachPart reads the process's writable memory in parts of up to 4 MiB, which overlap by the longest form. starts is
// how many bytes of a part are not in the next.
func eachPart(t testing.TB, overlap int, do func(part []byte, starts int)) {
	t.Helper()
	memory, err := os.Open("/proc/self/mem")
	require.NoError(t, err)
	defer memory.Close()
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	buffer := make([]byte, 4<<20)
	own := uint64(uintptr(unsafe.Pointer(&buffer[0])))
	lines := bufio.NewScanner(bytes.NewReader(maps))
	for lines.Scan() {
		var from, to uint64
		var mode string
		_, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &mode)
		require.NoError(t, err)
		if !strings.HasPrefix(mode, "rw") || strings.HasSuffix(lines.Text(), "]") && !strings.Contains(lines.Text(), "stack") &&
			!strings.Contains(lines.Text(), "heap") && !strings.Contains(lines.Text(), "anon") {
			continue
		}
		for at := from; at < to; {
			size := min(to-at, uint64(len(buffer)))
			if at < own+uint64(len(buffer)) && own < at+size { // skip the scan's own buffer, which holds copies
				if at >= own {
					at = own + uint64(len(buffer))
					continue
				}
				size = own - at
			}
			n, err := memory.ReadAt(buffer[:size], int64(at))
			if err != nil && n == 0 {
				at += uint64(len(untouched)) // the page is not mapped
				continue
			}
			starts := n
			if uint64(n) == size && at+size < to && n > overlap {
				starts = n - overlap
			}
			do(buffer[:n], starts)
			at += uint64(starts)
		}
	}
	clear(buffer)
}
