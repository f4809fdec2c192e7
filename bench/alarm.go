package main

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// alarmed lists the rows that --alarm checks. Each compares ours with a limit or peer that alternates with it in one
// run, so the machine's speed and load affect both sides.
var alarmed = []string{"verifier/analyze", "relay/mix", "relay/ingest/sqlite", "relay/ingest/postgres",
	"relay/ingest/sqlite/b16", "relay/ingest/postgres/b16", "client/histogram256/node/ms",
	"client/vector1000/node/ms", "client/histogram256/chromium/ms", "client/vector1000/chromium/ms", "e2e/1e5/cpu"}

// A row raises an alarm if its ratio is below alarmShare of the committed ratio in each of alarmRuns runs.
const (
	alarmShare = 0.9
	alarmRuns  = 3
)

// watch measures the alarmed rows, and up to twice more those whose ratio fell. The error names the rows whose ratio
// fell in every run.
func watch(ctx context.Context, o options, measure func(name string) ([]Row, error)) error {
	committed, err := readResult(o.alarm)
	if err != nil {
		return err
	}
	result := &Result{Machine: machine(ctx)}
	progress("%v", result.Machine)
	suspects, wanted := alarmed, matcher(o.rows)
	for range alarmRuns {
		var now []Row
		for _, name := range suspects {
			if !wanted(name) {
				continue
			}
			got, err := measure(name)
			if err != nil {
				return err
			}
			now = append(now, got...)
		}
		result.Rows = append(result.Rows, now...)
		if suspects = fallen(committed.Rows, now); len(suspects) == 0 {
			break
		}
		progress("below 90 %% of the committed ratio: %s", strings.Join(suspects, ", "))
	}
	if err := result.print(os.Stdout, o.json); err != nil {
		return err
	}
	if len(suspects) > 0 {
		return fmt.Errorf("the ratio fell by over 10 %% in %d runs: %s", alarmRuns, strings.Join(suspects, ", "))
	}
	return nil
}

// ratio returns the row's ratio to its limit, or without a limit its ratio to the peer. It is nil if the row has
// neither.
func (r Row) ratio() *float64 {
	if r.LimitRatio != nil {
		return r.LimitRatio
	}
	return r.PeerRatio
}

// fallen returns the names of rows whose ratio is below 90 % of the ratio before, or which have lost their ratio.
func fallen(before, now []Row) (names []string) {
	for _, was := range before {
		for _, is := range now {
			if is.Name != was.Name || was.ratio() == nil {
				continue
			}
			if is.ratio() == nil || *is.ratio() < alarmShare**was.ratio() {
				names = append(names, is.Name)
			}
		}
	}
	return names
}
