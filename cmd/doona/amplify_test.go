package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/cli"
)

// runVerifier runs `gamma` or `amplify` with args and --json. It returns the decoded JSON output and the exit status.
func runVerifier(t *testing.T, args string) (map[string]any, int) {
	t.Helper()
	root := cli.Root("verifier", "test", "", gammaCommand(), amplifyCommand())
	var out bytes.Buffer
	root.SetOut(&out)
	status := cli.Run(root, append(strings.Fields(args), "--json"))
	result := map[string]any{}
	if status == cli.ExitOK {
		require.NoError(t, json.Unmarshal(out.Bytes(), &result))
	}
	return result, status
}

func TestGammaCommand(t *testing.T) {
	tests := []struct {
		args  string
		gamma float64
	}{
		{"--k 4 --users 10000 --epsilon .5 --delta 1e-6 --rule revealed", .0541},
		{"--k 4 --users 10000 --epsilon .5 --delta 1e-6 --rule theorem1", .325},
		{"--k 10 --users 1000000 --epsilon 1 --delta 1e-8 --rule revealed", .000621},
		{"--k 10 --users 1000000 --epsilon 1 --delta 1e-8 --rule theorem1", .002676},
	}
	for _, tt := range tests {
		result, status := runVerifier(t, "gamma "+tt.args)
		require.Equal(t, cli.ExitOK, status)
		require.InEpsilon(t, tt.gamma, result["gamma"], 2e-3)
		require.Contains(t, result["gamma_exact"], "/")
	}
	result, _ := runVerifier(t, "gamma --k 4 --users 10000 --epsilon .5 --delta 1e-6")
	require.Equal(t, "exact", result["rule"])
	require.Less(t, result["gamma"], .0541)
	result, _ = runVerifier(t, "gamma --k 2 --users 10000 --epsilon 1 --delta 1e-6")
	require.Equal(t, "others", result["rule"])
	require.InEpsilon(t, .006743, result["gamma"], 1e-3)
	_, status := runVerifier(t, "gamma --k 3 --users 10000 --epsilon 1 --delta 1e-6 --rule others")
	require.Equal(t, cli.ExitUsage, status)
}

func TestAmplifyCommandSolvesForEachQuantity(t *testing.T) {
	base := "amplify --mechanism krr --bound exact --k 10 "
	eps, status := runVerifier(t, base+"--eps0 1 --users 1000000 --delta 1e-6")
	require.Equal(t, cli.ExitOK, status)
	require.Equal(t, true, eps["amplified"])
	require.Equal(t, eps["value"], eps["epsilon"])
	delta, _ := runVerifier(t, base+"--eps0 1 --users 1000000 --epsilon .002 --solve delta")
	require.Less(t, delta["value"], 1e-3)
	two, _ := runVerifier(t, "amplify --mechanism krr --bound others --k 2 --eps0 1 --users 1000000 --delta 1e-6")
	one, _ := runVerifier(t, "amplify --mechanism krr --bound exact --k 2 --eps0 1 --users 1000000 --delta 1e-6")
	require.Less(t, two["value"], one["value"])
	users, _ := runVerifier(t, base+"--eps0 1 --delta 1e-6 --epsilon .002 --solve users")
	require.Equal(t, users["value"], users["users"])
	eps0, _ := runVerifier(t, base+"--users 1000000 --delta 1e-6 --epsilon .002 --solve eps0")
	require.Greater(t, eps0["value"], .002)
}

// TestAmplifyCommandComposesEpochs: the composed ε of 365 daily releases must be far below the sum of their ε, at the
// same total δ. The same holds for 30 releases with Laplace noise.
func TestAmplifyCommandComposesEpochs(t *testing.T) {
	chart := filepath.Join(t.TempDir(), "epochs.svg")
	krr := "amplify --mechanism krr --bound exact --k 16 --eps0 5.53 --users 10000 "
	one, _ := runVerifier(t, krr+"--delta 1e-6")
	year, status := runVerifier(t, krr+"--delta 3.65e-4 --epochs 365 --plot "+chart)
	require.Equal(t, cli.ExitOK, status)
	require.InDelta(t, .997, one["value"], .001)
	require.InDelta(t, 22.1, year["value"], .05)
	require.Equal(t, 365.0, year["epochs"])
	svg, err := os.ReadFile(chart)
	require.NoError(t, err)
	require.Contains(t, string(svg), "added up")
	month, status := runVerifier(t,
		"amplify --mechanism laplace --bound exact --eps0 1 --users 10000 --delta 3e-5 --epochs 30")
	require.Equal(t, cli.ExitOK, status)
	require.InDelta(t, .18, month["value"], .001)
}

func TestAmplifyCommandSaysWhenNothingIsGained(t *testing.T) {
	result, status := runVerifier(t, "amplify --mechanism generic --bound hoeffding --eps0 4 --users 10 --delta 1e-6")
	require.Equal(t, cli.ExitOK, status)
	require.Nil(t, result["raw"])
	require.Equal(t, false, result["amplified"])
	require.Equal(t, 4.0, result["value"])
}

func TestAmplifyCommandRejects(t *testing.T) {
	for _, args := range []string{
		"--mechanism krr --bound clones --k 10 --eps0 1 --users 10 --delta 1e-6",
		"--mechanism laplace --bound revealed --eps0 1 --users 10 --delta 1e-6",
		"--mechanism generic --bound exact --eps0 1 --users 10 --delta 1e-6",
		"--mechanism krr --bound others --k 3 --eps0 1 --users 10 --delta 1e-6",
		"--mechanism laplace --bound others --eps0 1 --users 10 --delta 1e-6",
		"--mechanism krr --bound exact --k 1 --eps0 1 --users 10 --delta 1e-6",
		"--mechanism krr --bound exact --eps0 1 --users 10 --delta 1e-6",
		"--mechanism krr --bound exact --k 3 --eps0 0 --users 10 --delta 1e-6",
		"--mechanism krr --bound exact --k 3 --eps0 1 --users 0 --delta 1e-6",
		"--mechanism krr --bound exact --k 3 --eps0 1 --users 10 --delta 0",
		"--mechanism krr --bound exact --k 3 --eps0 1 --users 10 --delta 1e-6 --epsilon 1",
		"--mechanism krr --bound exact --k 3 --eps0 1 --users 10 --delta 1e-6 --solve gamma",
		"--mechanism generic --bound efmrtt19 --eps0 .6 --users 10000 --delta 1e-6",
		"--mechanism generic --bound efmrtt19 --eps0 .4 --users 999 --delta 1e-6",
		"--mechanism gaussian --bound exact --eps0 1 --users 10 --delta 1e-6",
		"--mechanism gaussian --sigma -1",
		"--mechanism krr --bound exact --k 3 --eps0 1 --users 10 --delta 1e-6 --epochs 0",
		"--mechanism krr --bound bennett --k 3 --eps0 1 --users 10 --delta 1e-6 --epochs 2",
		"--mechanism generic --bound clones --eps0 1 --users 10 --delta 1e-6 --epochs 2",
		"--mechanism krr --bound exact --k 3 --eps0 1 --users 10 --epsilon 1 --solve delta --epochs 2",
	} {
		_, status := runVerifier(t, "amplify "+args)
		require.Equal(t, cli.ExitUsage, status, args)
	}
}

func TestAmplifyPlot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "eps.svg")
	_, status := runVerifier(t,
		"amplify --mechanism krr --bound exact --k 10 --eps0 1 --users 1000000 --delta 1e-6 --plot "+path)
	require.Equal(t, cli.ExitOK, status)
	svg, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, name := range []string{"krr exact", "krr revealed", "generic clones"} {
		require.Contains(t, string(svg), name)
	}
}
