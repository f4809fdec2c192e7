package planner

import (
	"slices"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// CheckOptions returns an [invalid.FieldError] if the query is unknown, or if an option is given that this query would
// ignore. given returns the text of an option's value, and whether the user gave the option.
func CheckOptions(query task.Query, given func(option string) (value string, ok bool)) error {
	var names []string
	takers := map[string][]string{} // Names of the queries that use an option, by option.
	for _, q := range task.Queries {
		names = append(names, string(q.Query))
		for _, option := range q.Options {
			takers[option] = append(takers[option], string(q.Query))
		}
	}
	if !slices.Contains(names, string(query)) {
		return invalid.Field("query", strconv.Quote(string(query)), list(names, "or"))
	}
	for _, option := range []string{"range", "no-clip", "bins", "labels", "dim", "sparse", "length"} {
		value, ok := given(option)
		if ok && !slices.Contains(takers[option], string(query)) {
			return invalid.Field(option, value, "none for query "+string(query)+": it is for "+
				list(takers[option], "and"))
		}
	}
	return nil
}

// list joins names, such as "a, b or c".
func list(names []string, last string) string {
	if len(names) == 1 {
		return names[0]
	}
	n := len(names) - 1
	return strings.Join(names[:n], ", ") + " " + last + " " + names[n]
}

// given is an argument for [CheckOptions]: it looks up the options in the fields of a Query.
func (q Query) given(option string) (value string, ok bool) {
	switch option {
	case "bins":
		return strconv.FormatUint(q.Bins, 10), q.Bins != 0
	case "dim":
		return strconv.FormatUint(q.Dim, 10), q.Dim != 0
	case "length":
		return strconv.FormatUint(q.Length, 10), q.Length != 0
	case "labels":
		return "true", q.Labels
	}
	return "", false
}
