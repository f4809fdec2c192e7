package postlink

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// squeezeSection squeezes the code section of a module that imports nothing.
func squeezeSection(code []byte) ([]byte, error) {
	bodies, err := functions{}.bodies(code)
	if err != nil {
		return nil, err
	}
	i := &image{bodies: bodies}
	err = i.squeeze(true)
	return writeBodies(i.bodies), err
}

// TestSqueeze: squeeze removes a return address that a call writes. It must keep an argument that only looks like one.
func TestSqueeze(t *testing.T) {
	address := []byte{0x42, 0x80, 0x80, 0x80, 0x80, 0x01, 0x37, 3, 0} // i64.const 0x1000<<16, i64.store
	call := []byte{0x41, 0, 0x0f, 0x0b}                               // i32.const 0, return, end
	push, argument := []byte{0x24, 0, 0x23, 0}, []byte{0x23, 0}       // global.set 0; global.get 0
	join := func(parts ...[]byte) []byte {
		code := bytes.Join(parts, nil)
		return append([]byte{1, byte(len(code) + 1), 0}, code...)
	}
	squeezed, err := squeezeSection(join([]byte{0x41, 9}, push, address, call))
	require.NoError(t, err)
	require.Equal(t, join([]byte{0x41, 9, 0x24, 0}, call), squeezed)
	kept := join(argument, address, call)
	squeezed, err = squeezeSection(kept)
	require.NoError(t, err)
	require.Equal(t, kept, squeezed)
}

// TestSqueezeRefusesToUnwind: Squeeze refuses a function that could return 1. Its callers would otherwise ignore that
// result.
func TestSqueezeRefusesToUnwind(t *testing.T) {
	section := func(code ...byte) []byte { return append([]byte{1, byte(len(code) + 1), 0}, code...) }
	same := section(0x41, 0x00, 0x0f, 0x0b) // i32.const 0, return, end
	squeezed, err := squeezeSection(same)
	require.NoError(t, err)
	require.Equal(t, same, squeezed)
	_, err = squeezeSection(section(0x41, 0x01, 0x0f, 0x0b)) // i32.const 1
	require.ErrorIs(t, err, ErrUnwinds)
	branch := []byte{0x02, 0x40, 0x0c, 0x00, 0x0b, 0x41, 0x01, 0x0b} // block, br 0, end, i32.const 1, end
	_, err = squeezeSection(section(branch...))
	require.ErrorIs(t, err, ErrUnwinds)
}
