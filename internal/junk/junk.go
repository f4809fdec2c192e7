// Package junk makes what an attacker sends to cost a decoder memory or time: requests and answers of the largest size,
// behind a beginning that is as it should be. Tests and benchmarks give them to real parties.
package junk

import (
	"bytes"
	"fmt"
	"io"
	"runtime"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Case is one request or answer. It takes no memory until it is read.
type Case struct {
	Name string

	head []byte // how it begins
	unit []byte // what follows, again and again
	size int
}

// fill is a kind of junk: what follows a head that announces it, again and again.
type fill struct {
	name string
	lead []byte // of a head with 4 bytes behind it
	unit []byte
	lies bool // it announces 2³² − 1, not what follows
}

var fills = []fill{
	{"empty byte strings", []byte{0xdd}, []byte{0xc4, 0}, false},
	{"empty texts", []byte{0xdd}, []byte{0xa0}, false},
	{"empty lists", []byte{0xdd}, []byte{0x90}, false},
	{"lists of one number", []byte{0xdd}, []byte{0x91, 0}, false},
	{"empty maps", []byte{0xdd}, []byte{0x80}, false},
	{"nils", []byte{0xdd}, []byte{0xc0}, false},
	{"numbers", []byte{0xdd}, []byte{0}, false},
	{"nested lists", nil, []byte{0x91}, false},
	{"nested maps", nil, []byte{0x81, 0xa0}, false},
	{"a map", []byte{0xdf}, []byte{0xa0}, false},
	{"a byte string", []byte{0xc6}, []byte{0}, false},
	{"a text", []byte{0xdb}, []byte{'a'}, false},
	{"a list that is announced", []byte{0xdd}, []byte{0xc4, 0}, true},
	{"a byte string that is announced", []byte{0xc6}, []byte{0}, true},
	{"JSON lists", nil, []byte("["), false},
	{"JSON objects", nil, []byte(`{"a":`), false},
}

// Behind returns all kinds of junk of a size behind a beginning that its name says.
func Behind(name string, beginning []byte, size int) (all []Case) {
	for _, f := range fills {
		head := bytes.Clone(beginning)
		if f.lead != nil {
			n := (size - len(head) - 5) / len(f.unit)
			if f.lies {
				n = 1<<32 - 1
			}
			head = append(append(head, f.lead...), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
		}
		all = append(all, Case{name + ", " + f.name, head, f.unit, max(size, len(head))})
	}
	return all
}

// Bundles returns junk of a size in the place of a bundle: from its first byte on, behind what an owner has signed, in
// the place of its lists of keys, and in the first of those.
func Bundles(of *taskfile.Bundle, size int) (all []Case) {
	head := headOf(of)
	lists := codec.AppendArray(bytes.Clone(head), len(of.KeyLists))
	first := codec.AppendLength(bytes.Clone(lists), uint64(len(of.KeyLists[0])))
	return append(append(append(Behind("nothing", nil, size), Behind("a signed task", head, size)...),
		Behind("a list of lists", lists, size)...), Behind("a list of keys", first, size)...)
}

// headOf returns a bundle up to its lists of keys.
func headOf(of *taskfile.Bundle) []byte {
	head := codec.AppendBytes(codec.AppendArray(nil, 4), of.Task)
	return codec.AppendBytes(codec.AppendBytes(head, of.Owner), of.Signature)
}

// Streams returns junk of a size in the place of a stream whose first task is in a bundle: in that bundle, behind it and
// in the place of its statements.
func Streams(root *taskfile.Bundle, size int) (all []Case) {
	begin := codec.AppendArray(codec.AppendArray(nil, 2), 1)
	for _, c := range Bundles(root, size-len(begin)) {
		c.head, c.size = append(bytes.Clone(begin), c.head...), size
		all = append(all, c)
	}
	bare := codec.AppendArray(headOf(root), 0)
	second := append(codec.AppendArray(codec.AppendArray(nil, 2), 2), bare...)
	statements := append(bytes.Clone(begin), bare...)
	return append(append(all, Behind("the first task", second, size)...), Behind("all tasks", statements, size)...)
}

// Len returns the number of bytes.
func (c Case) Len() int { return c.size }

// Reader returns a reader of the bytes.
func (c Case) Reader() io.Reader { return &reader{c, 0} }

// Bytes returns the bytes.
func (c Case) Bytes() []byte {
	out := make([]byte, c.size)
	if _, err := io.ReadFull(c.Reader(), out); err != nil {
		panic(fmt.Sprintf("junk: %v", err))
	}
	return out
}

type reader struct {
	Case
	at int
}

func (r *reader) Read(p []byte) (n int, err error) {
	if r.at == r.size {
		return 0, io.EOF
	}
	p = p[:min(len(p), r.size-r.at)]
	if r.at < len(r.head) {
		n = copy(p, r.head[r.at:])
	} else {
		first := (r.at - len(r.head)) % len(r.unit)
		for n < len(p) && n < len(r.unit) {
			p[n] = r.unit[(first+n)%len(r.unit)]
			n++
		}
		for n < len(p) { // what is there already, again and again
			n += copy(p[n:], p[:n/len(r.unit)*len(r.unit)])
		}
	}
	r.at += n
	return n, nil
}

// Allocated returns how many bytes this process has ever asked for. What is asked for while something runs is at least
// what that holds at a time.
func Allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
