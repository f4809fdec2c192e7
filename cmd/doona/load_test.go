package main

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestLoadWithoutEstimate: `doona load` must print its measurements before it waits for the verifier, so that the user
// has them even without an estimate. It must not wait if the accepted reports do not fill whole batches. Its error must
// then say why the other reports were refused.
func TestLoadWithoutEstimate(t *testing.T) {
	newCascade := func() *relaytest.Cascade {
		c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(10)})
		c.StartAll(t)
		return c
	}
	c := newCascade()
	var out bytes.Buffer
	var then []string // for each request to the verifier, the output until then
	verifier := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		then = append(then, out.String())
		w.Write([]byte(`{"users": 0, "batch_size": 10}`))
	}))
	defer verifier.Close()
	load := func(args ...string) error {
		out.Reset()
		then = nil
		cmd := root()
		cmd.SetOut(&out)
		cmd.SetErr(&bytes.Buffer{})
		cmd.SetArgs(append([]string{"load", "--task", c.TaskURL(0), "--owner", c.Owner, "--rate", "0", "--duration", "1m"},
			args...))
		return cmd.Execute()
	}
	report := verifier.URL + "/tasks/ID"
	err := load("--clients", "10", "--report", report, "--wait", "0s")
	require.ErrorContains(t, err, "after 0s the verifier has an estimate of 0 of 10 clients; a batch has 10")
	require.Contains(t, out.String(), "accepted  10 ")
	require.Len(t, then, 2)
	require.Equal(t, out.String(), then[1])
	err = load("--clients", "10", "--json")
	require.EqualError(t, err, "no report was accepted; the commonest answer: limit")
	require.Contains(t, out.String(), `"refused":{"limit":10}`)

	require.NoError(t, load("--clients", "15"))
	err = load("--clients", "20", "--report", report)
	require.EqualError(t, err, "couldn't compare with the truth: 5 of 20 reports were accepted in 1m0s, and batches "+
		"have 10; the commonest refusal: limit")
	require.Contains(t, out.String(), "refused   15 limit")
	require.Len(t, then, 1)

	c = newCascade()
	err = load("--clients", "20", "--report", report, "--rate", "15", "--duration", "400ms")
	require.ErrorContains(t, err, "of 20 reports were accepted in 400ms, and batches have 10; --duration ended it")
	require.Len(t, then, 1)
}

// TestLoadSaysHowFarOff: `doona load` must give the largest error in standard errors and relative to the band, both
// from the verifier's report.
func TestLoadSaysHowFarOff(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(10)})
	c.StartAll(t)
	asked := 0
	verifier := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		if asked == 1 {
			w.Write([]byte(`{"users": 0, "batch_size": 10}`))
			return
		}
		w.Write([]byte(`{"users": 10, "batch_size": 10, "estimate": 1000, "standard_error": 10, "band": [900, 1010]}`))
	}))
	defer verifier.Close()
	var out bytes.Buffer
	cmd := root()
	cmd.SetOut(&out)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SetArgs([]string{"load", "--json", "--task", c.TaskURL(0), "--owner", c.Owner, "--rate", "0", "--duration", "1m",
		"--clients", "10", "--report", verifier.URL + "/tasks/ID"})
	require.NoError(t, cmd.Execute())
	var got struct {
		Comparison struct {
			Truth  float64
			Worst  float64 `json:"worst_standard_errors"`
			Reach  float64 `json:"worst_band_reaches"`
			InBand bool    `json:"truth_in_band"`
		}
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &got), out.String())
	off := 1000 - got.Comparison.Truth
	require.InDelta(t, off/10, got.Comparison.Worst, 1e-9)
	require.InDelta(t, off/100, got.Comparison.Reach, 1e-9)
	require.False(t, got.Comparison.InBand)
}

// TestReaches: reaches must divide by the distance from the estimate to that end of the band on the truth's side.
func TestReaches(t *testing.T) {
	band := [2]float64{8, 14}
	require.InDelta(t, 0.5, reaches(12, 10, band), 1e-12)
	require.InDelta(t, 1.5, reaches(7, 10, band), 1e-12)
	require.Zero(t, reaches(10, 10, [2]float64{10, 10}))
	require.Equal(t, math.MaxFloat64, reaches(9, 10, [2]float64{10, 14}))
}
