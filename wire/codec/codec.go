// Package codec encodes and decodes the msgpack forms that parties exchange. A struct becomes an array of its fields,
// and every value has exactly one canonical encoding.
package codec

import (
	"bytes"
	"fmt"
	"math"
	"reflect"

	"github.com/vmihailenco/msgpack/v5"
)

// MediaType is the media type of all requests and answers between parties, except problems.
const MediaType = "application/msgpack"

// Marshal encodes v, a pointer to a struct, in its canonical form: fields in order without names, shortest integers.
// A nil slice in v is an error: an empty list is an empty array, and nothing on the wire is nil.
func Marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := msgpack.NewEncoder(&out)
	enc.UseCompactInts(true)
	enc.UseArrayEncodedStructs(true)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("couldn't encode %T: %w", v, err)
	}
	if err := scan(out.Bytes()); err != nil {
		return nil, fmt.Errorf("couldn't encode %T: %w", v, err)
	}
	return out.Bytes(), nil
}

// Unmarshal decodes the canonical form of v, a pointer, and accepts no other form. It refuses trailing bytes, integers
// in a longer encoding than needed, arrays of another length than the struct's, and values of another type. The type of
// v limits how deep arrays nest. Unmarshal allocates a list only if enough bytes remain for its elements. So memory is
// proportional to len(in), whatever lengths the input claims.
func Unmarshal(in []byte, v any) error {
	view := NewView(in)
	view.into(reflect.ValueOf(v).Elem())
	if err := view.End(); err != nil {
		return fmt.Errorf("couldn't decode %T: %w", v, err)
	}
	return nil
}

func (v *View) into(value reflect.Value) {
	switch value.Kind() {
	case reflect.Uint64:
		value.SetUint(v.Uint())
	case reflect.Int:
		n := v.Uint()
		if n > math.MaxInt {
			v.fail(errCanonical)
			return
		}
		value.SetInt(int64(n))
	case reflect.String:
		value.SetString(string(v.Text()))
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		v.into(value.Elem())
	case reflect.Struct:
		v.fields(value)
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			value.SetBytes(bytes.Clone(v.Bytes()))
			return
		}
		v.elements(value)
	default:
		panic("codec: no form of " + value.Type().String())
	}
}

// fields decodes a struct from an array. It fills the exported fields, which are those that reflection can set.
func (v *View) fields(value reflect.Value) {
	fields := 0
	for i := range value.NumField() {
		if value.Field(i).CanSet() {
			fields++
		}
	}
	v.ArrayOf(fields)
	for i := 0; i < value.NumField() && v.err == nil; i++ {
		if field := value.Field(i); field.CanSet() {
			v.into(field)
		}
	}
}

func (v *View) elements(value reflect.Value) {
	n := v.Array()
	if v.err == nil && n > len(v.rest)/least(value.Type().Elem()) {
		v.fail(errTruncated)
	}
	if v.err != nil {
		return
	}
	value.Set(reflect.MakeSlice(value.Type(), n, n))
	for i := range n {
		if v.into(value.Index(i)); v.err != nil {
			return
		}
	}
}

// least returns the smallest number of bytes that a value of type t can take.
func least(t reflect.Type) int {
	switch t.Kind() {
	case reflect.Pointer:
		return least(t.Elem())
	case reflect.Struct:
		n := 1
		for i := range t.NumField() {
			if t.Field(i).IsExported() {
				n += least(t.Field(i).Type)
			}
		}
		return n
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return 2 // header of an empty byte string
		}
	}
	return 1
}
