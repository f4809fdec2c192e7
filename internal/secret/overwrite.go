package secret

import (
	"reflect"
	"unsafe"
)

// Overwrite overwrites a key object of another library, and reports whether it could. The memory that the pointer leads
// to, directly or through one more pointer, must hold no further pointers. The object must not be used afterwards.
func Overwrite(object any) bool {
	v := reflect.ValueOf(object).Elem()
	if v.Kind() == reflect.Struct && v.NumField() == 1 && v.Field(0).Kind() == reflect.Pointer {
		v = v.Field(0).Elem() // the object is a wrapper around another package's type, as in crypto/mlkem
	}
	if !v.IsValid() || !flat(v.Type()) {
		return false
	}
	clear(unsafe.Slice((*byte)(v.Addr().UnsafePointer()), v.Type().Size()))
	return true
}

// OverwriteField overwrites the bytes in one field of another library's key object, and reports whether it could. The
// object must not be used afterwards.
func OverwriteField(object any, name string) bool {
	v := reflect.ValueOf(object).Elem().FieldByName(name)
	if !v.IsValid() || v.Kind() != reflect.Slice || v.Type().Elem().Kind() != reflect.Uint8 {
		return false
	}
	clear(v.Bytes())
	return true
}

// flat reports whether values of a type contain no pointers.
func flat(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return flat(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !flat(t.Field(i).Type) {
				return false
			}
		}
		return true
	default:
		return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128 && t.Kind() != reflect.Uintptr
	}
}
