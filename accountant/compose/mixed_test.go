package compose_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/wire/task"
)

// listed is a task of any protocol: its law to compose, and the list of all its outcomes.
type listed struct {
	law *compose.Law
	all law
}

// shuffled returns randomized response of a client among a few other clients with the given values.
func shuffled(t *testing.T, k int, gamma float64, others ...int) listed {
	dominating, err := compose.KRRLaw(accountant.Exact, uint64(k), gamma, uint64(len(others)+1))
	require.NoError(t, err)
	return listed{dominating, shuffledLaw(k, gamma, others)}
}

// pooled returns the task in which a client's message is in one of b sets of cells, among dummies that are uniform over
// all cells.
func pooled(b, dummies int) listed {
	at := func(n, m int) float64 { // probability that n dummies are in one set and m in the other
		rest := dummies - n - m
		if n < 0 || m < 0 || rest < 0 {
			return 0
		}
		ways := math.Gamma(float64(dummies+1)) / math.Gamma(float64(n+1)) / math.Gamma(float64(m+1)) /
			math.Gamma(float64(rest+1))
		return ways * math.Pow(1/float64(b), float64(n+m)) * math.Pow(1-2/float64(b), float64(rest))
	}
	var all law
	for n := range dummies + 2 {
		for m := range dummies + 2 - n {
			all = append(all, [2]float64{at(n-1, m), at(n, m-1)})
		}
	}
	return listed{compose.PoolLaw(uint64(b), uint64(dummies)), all}
}

// celled returns the task in which a client's message is in one of two cells. The number of dummies in each cell
// follows the table.
func celled(t *testing.T, table ...uint64) listed {
	curve, err := relaynoise.New(&task.Noise{Kind: task.NoiseCells, Cells: 2, Tables: [][]uint64{table}})
	require.NoError(t, err)
	sum := 0.0
	for _, w := range table {
		sum += float64(w)
	}
	weight := func(z int) float64 {
		if z < 0 || z >= len(table) {
			return 0
		}
		return float64(table[z]) / sum
	}
	var all law
	for n := range len(table) + 1 {
		for m := range len(table) + 1 {
			all = append(all, [2]float64{weight(n-1) * weight(m), weight(n) * weight(m-1)})
		}
	}
	return listed{curve.Law(), all}
}

// For up to three tasks of different protocols, the composed bound must never be below the δ found by enumerating all
// outcomes, in both directions, and must not be far above it.
func TestMixedProtocolsAreNotBelowEnumeration(t *testing.T) {
	krr := shuffled(t, 3, .5, 0, 2)
	coin := shuffled(t, 2, .4, 1, 1, 1)
	pool := pooled(3, 9)
	small := pooled(2, 5)
	cells := celled(t, 1, 6, 15, 20, 15, 6, 1)
	flat := celled(t, 3, 3, 3, 3)
	among := map[string]bool{"responses and a pool": true, "all": true, "two pools and a coin": true,
		"two kinds of cells and responses": true}
	for name, tasks := range map[string][]listed{
		"a pool": {pool}, "cells": {cells}, "flat cells": {flat}, "responses and a pool": {krr, pool},
		"a pool and cells": {pool, cells}, "all": {krr, pool, cells}, "two pools and a coin": {pool, small, coin},
		"two kinds of cells and responses": {cells, flat, krr}, "one thrice": {cells, cells, cells},
	} {
		product, seen := law{{1, 1}}, []compose.Observation(nil)
		for _, one := range tasks {
			product = product.product(one.all)
			seen = append(seen, one.law.Observation(1))
		}
		mirrored := make(law, len(product))
		for i, pq := range product {
			mirrored[i] = [2]float64{pq[1], pq[0]}
		}
		for _, eps := range []float64{0, .1, .5, 1, 1.7, 2.5, 4, 8} {
			composed := compose.Delta(seen, eps, 1e-6)
			for _, truth := range []float64{product.delta(eps), mirrored.delta(eps)} {
				require.GreaterOrEqual(t, composed, truth*(1-1e-12), "%s at ε = %v", name, eps)
			}
			if !among[name] && eps > 0 { // not tight for among: the worst case needs other values of the other clients
				require.LessOrEqual(t, composed, product.delta(eps)+.004, "%s at ε = %v", name, eps)
			}
		}
	}
}
