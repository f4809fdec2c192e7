package table

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/doona-dp/doona/internal/invalid"
)

// ReadLines reads the lines of a file of texts, at most 2²⁰. More are an error about "texts".
func ReadLines(path string) (lines []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the texts: %w", err)
	}
	defer f.Close()
	const mostTexts = 1 << 20
	in := bufio.NewScanner(f)
	for in.Scan() {
		if len(lines) == mostTexts {
			return nil, invalid.Field("texts", "more lines", fmt.Sprintf("at most %d", mostTexts))
		}
		lines = append(lines, strings.TrimSuffix(in.Text(), "\r"))
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("couldn't read the texts: %w", err)
	}
	return lines, nil
}
