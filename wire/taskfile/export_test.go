package taskfile

import (
	"reflect"
	"slices"
	"strings"
)

// wholes are parts with several JSON fields that Fields lists as one.
var wholes = []string{"params", "claim.total", "noise"}

// Fields returns the dotted names of the JSON document's fields. A list of parties counts like one party.
func Fields() []string { return fieldsOf(reflect.TypeFor[document](), "") }

func fieldsOf(t reflect.Type, path string) (names []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || slices.Contains(wholes, path) || path == "epochs.start" {
		return []string{path}
	}
	for i := range t.NumField() {
		key, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, fieldsOf(t.Field(i).Type, strings.TrimPrefix(path+"."+key, "."))...)
	}
	return names
}
