package secret

import (
	"crypto/sha256"
	"sync"
)

// pads is the working memory of one HMAC computation.
type pads struct {
	inner, outer, sum []byte
}

var padsPool = sync.Pool{New: func() any {
	return &pads{make([]byte, 0, 512), make([]byte, 0, sha256.BlockSize+sha256.Size), make([]byte, 0, sha256.Size)}
}}

// HMAC writes the HMAC-SHA256 of the concatenated parts to to. The key must have at most 64 bytes. A to of less than 32
// bytes gets the first bytes. Unlike crypto/hmac, HMAC keeps no copy of the key. The result stays on the stack: if it
// is itself a key, call HMAC within [Do].
func HMAC(to, key []byte, parts ...[]byte) {
	if len(key) > sha256.BlockSize {
		panic("secret: HMAC with a key of more than 64 bytes, which must be hashed before")
	}
	p := padsPool.Get().(*pads)
	defer padsPool.Put(p)
	size := sha256.BlockSize
	for _, part := range parts {
		size += len(part)
	}
	if cap(p.inner) < size {
		p.inner = make([]byte, 0, size)
	}
	p.inner, p.outer = pad(p.inner, key, 0x36), pad(p.outer, key, 0x5c)
	for _, part := range parts {
		p.inner = append(p.inner, part...)
	}
	p.outer = hash(p.outer, p.inner)
	p.sum = hash(p.sum[:0], p.outer)
	copy(to, p.sum)
	clear(p.inner)
	clear(p.outer)
	clear(p.sum)
}

// pad returns a block of 64 bytes: the key, padded with zeros, XORed with a byte.
func pad(block, key []byte, with byte) []byte {
	block = block[:sha256.BlockSize]
	n := copy(block, key)
	clear(block[n:])
	for i := range block {
		block[i] ^= with
	}
	return block
}

type digest [sha256.Size]byte

func hash(to, data []byte) []byte {
	h := digest(sha256.Sum256(data))
	to = append(to, h[:]...)
	clear(h[:])
	return to
}
