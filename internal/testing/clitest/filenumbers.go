package clitest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FileNumbers does what [Numbers] does for the numbers of a file in ../given, which every line reads. The file is JSON
// or YAML, with a key and its value on one line. Each number has a copy of the folder.
// keys are the keys whose numbers are varied; the file must have each. Without keys, it varies all that the file has.
func FileNumbers(t *testing.T, e Examples, file string, keys ...string) {
	bench := newBench(t, e)
	path := filepath.Join(bench.dir, "given", file)
	in, err := os.ReadFile(path)
	require.NoError(t, err)
	if keys == nil {
		for _, m := range regexp.MustCompile(`"(\w+)": *"?-?\d[-\d./e]*"?[,\s}]`).FindAllSubmatch(in, -1) {
			keys = append(keys, string(m[1]))
		}
		slices.Sort(keys)
		keys = slices.Compact(keys)
		require.NotEmpty(t, keys)
	}
	for _, line := range e.Lines {
		v := vary(line, nil)
		v.gives = keys
		bench.add(v)
	}
	for _, key := range keys {
		at := regexp.MustCompile(`\b` + key + `"?: *"?([-\d][^\s",}\]]*)`).FindSubmatchIndex(in)
		require.NotNil(t, at, "%s has no number %s", file, key)
		value := string(in[at[2]:at[3]])
		values := slices.Clone(extremes)
		if strings.Trim(value, "0123456789smh") == "" && strings.Trim(value, "0123456789") != "" {
			values = append(values, durations...)
		}
		for i, text := range some(values, file+key) {
			given := fmt.Sprint(key, i)
			cp := exec.CommandContext(t.Context(), "cp", "-R", "-p", filepath.Dir(path), filepath.Join(bench.dir, given))
			require.NoError(t, cp.Run()) // [os.CopyFS] would open secrets to all.
			changed := string(in[:at[2]]) + text + string(in[at[3]:])
			require.NoError(t, os.WriteFile(filepath.Join(bench.dir, given, file), []byte(changed), 0o600))
			for _, line := range e.Lines {
				v := vary(line, nil)
				j := slices.Index(v.words, "../given/"+file)
				require.GreaterOrEqual(t, j, 0, "%s does not read ../given/%s", line, file)
				v.words[j] = "../" + given + "/" + file
				v.flags, v.note = []string{key}, key+": "+text
				bench.add(v)
			}
		}
	}
	bench.run(t)
}

// Keys returns the keys of all numbers in a struct that a YAML or JSON decoder fills, also in structs below it. tag is
// "yaml" or "json".
func Keys(of reflect.Type, tag string) (keys []string) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice:
		return Keys(of.Elem(), tag)
	case reflect.Struct:
	default:
		return nil
	}
	for field := range fields(of) {
		name, _, _ := strings.Cut(field.Tag.Get(tag), ",")
		if name == "-" || name == "" {
			continue
		}
		kind := field.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		if kind == reflect.TypeFor[time.Duration]() || kind.ConvertibleTo(reflect.TypeFor[float64]()) {
			keys = append(keys, name)
		}
		keys = append(keys, Keys(field.Type, tag)...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// fields iterates over the fields of a struct.
func fields(of reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range of.NumField() {
			if !yield(of.Field(i)) {
				return
			}
		}
	}
}
