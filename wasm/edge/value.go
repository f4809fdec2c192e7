package edge

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/problem"
)

// malformed returns the problem that says what a body must be, without quoting the body.
func malformed() error {
	return newProblem(InvalidValue, http.StatusBadRequest, "not in the task's domain",
		`value: want {"value": number} or {"value": [number, …]} and nothing else`)
}

func tooLarge(most int) error {
	return newProblem(problem.TooLarge, http.StatusRequestEntityTooLarge,
		"the body is longer than any value of the task", "at most "+strconv.Itoa(most)+" bytes")
}

// readBody reads a body. It refuses one of more than most bytes.
func readBody(body io.Reader, most int) ([]byte, error) {
	if body == nil {
		return nil, malformed()
	}
	raw, err := io.ReadAll(io.LimitReader(body, int64(most)+1))
	if err != nil {
		return nil, malformed()
	}
	if len(raw) > most {
		return nil, tooLarge(most)
	}
	return raw, nil
}

func parseValue(raw []byte) ([]float64, error) {
	in := scanner{rest: raw}
	if !in.take("{") || !in.take(`"value"`) || !in.take(":") {
		return nil, malformed()
	}
	value, ok := in.numbers()
	if !ok || !in.take("}") || !in.ended() {
		return nil, malformed()
	}
	return value, nil
}

// scanner reads JSON that is one object with a number or an array of numbers. encoding/json takes ten times as long and
// recurses as deep as the body nests.
type scanner struct{ rest []byte }

// ended skips white space and reports whether the input is used up.
func (s *scanner) ended() bool {
	s.rest = bytes.TrimLeft(s.rest, " \t\r\n")
	return len(s.rest) == 0
}

// take skips white space and reports whether the token follows. If so, it skips the token.
func (s *scanner) take(token string) (found bool) {
	s.ended()
	s.rest, found = bytes.CutPrefix(s.rest, []byte(token))
	return found
}

func (s *scanner) numbers() ([]float64, bool) {
	if !s.take("[") {
		x, ok := s.number()
		return []float64{x}, ok
	}
	value := []float64{}
	if s.take("]") {
		return value, true
	}
	for {
		x, ok := s.number()
		if !ok {
			return nil, false
		}
		value = append(value, x)
		if s.take("]") {
			return value, true
		}
		if !s.take(",") {
			return nil, false
		}
	}
}

// number reads a finite JSON number. strconv alone would also accept texts that are not JSON: 0x1p-2, 1_0 and +1.
func (s *scanner) number() (float64, bool) {
	s.ended()
	i := 0
	digits := func() bool {
		first := i
		for i < len(s.rest) && s.rest[i] >= '0' && s.rest[i] <= '9' {
			i++
		}
		return i > first
	}
	has := func(characters string) bool {
		found := i < len(s.rest) && strings.IndexByte(characters, s.rest[i]) >= 0
		if found {
			i++
		}
		return found
	}
	has("-")
	if !has("0") && !digits() || has(".") && !digits() {
		return 0, false
	}
	if has("eE") {
		has("+-")
		if !digits() {
			return 0, false
		}
	}
	x, err := strconv.ParseFloat(string(s.rest[:i]), 64)
	s.rest = s.rest[i:]
	return x, err == nil
}

// valueProblem returns the problem that says which values the task allows. It does not quote the given value.
func valueProblem(err error) error {
	var field *invalid.FieldError
	if !errors.As(err, &field) {
		return newProblem(problem.Internal, http.StatusInternalServerError, "couldn't randomize the value", "")
	}
	return newProblem(InvalidValue, http.StatusBadRequest, "not in the task's domain", field.Field+": want "+field.Want)
}
