package clitest

import "time"

// Judge returns what is wrong with a run in which flag n was varied.
func Judge(status int, stdout, stderr string, cpu time.Duration, memory int64) string {
	b := &bench{answers: pattern("no way"), slow: pattern("")}
	return b.judge(variation{line: "prog --n 1", flags: []string{"n"}}, outcome{status, stdout, stderr, cpu, memory})
}
